//! A minimal NBD client of the tests' own: fixed newstyle, simple replies, commands pipelined by the caller; and
//! extended headers, which the libnbd of Debian 12 does not know yet.
//!
//! It shares no code with the product, so that a misreading of the protocol cannot cancel itself out. What it cannot
//! say (structured replies, TLS) is left to the foreign clients that the tests also run.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// First eight bytes of every server.
pub const MAGIC: u64 = 0x4e42_444d_4147_4943;
/// Second eight bytes of a newstyle server, and first of every option.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// First bytes of an option's reply.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// First bytes of a request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// First bytes of a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Request flag: complete only when durable.
pub const FLAG_FUA: u16 = 1;
/// Request flag of write-zeroes: do not deallocate.
pub const FLAG_NO_HOLE: u16 = 2;

const OPTION_GO: u32 = 7;
const REPLY_ACK: u32 = 1;
const REPLY_INFO: u32 = 3;
const INFO_EXPORT: u16 = 0;
const INFO_BLOCK_SIZE: u16 = 3;
/// What may be asked of a server that says nothing about it.
const REQUEST_BYTES_MAX_DEFAULT: u32 = 32 << 20;

/// Commands by their number on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
#[allow(missing_docs)] // the protocol's own names
pub enum Command {
    Read = 0,
    Write = 1,
    Disconnect = 2,
    Flush = 3,
    Trim = 4,
    WriteZeroes = 6,
}

/// Where an export is to be had.
#[derive(Clone, Debug)]
pub struct Target {
    /// The socket that its server listens at.
    pub address: Address,
    /// Export name; empty for the default export.
    pub export: String,
}

/// A socket to connect to.
#[derive(Clone, Debug)]
pub enum Address {
    /// The path of a Unix socket.
    Unix(PathBuf),
    /// Host and port of a TCP socket, as `host:port`.
    Tcp(String),
}

impl Target {
    /// From `nbd+unix:///EXPORT?socket=PATH` or `nbd://HOST[:PORT]/EXPORT`.
    pub fn parse(uri: &str) -> Result<Target, String> {
        if let Some(rest) = uri.strip_prefix("nbd+unix:///") {
            let (export, socket) =
                rest.split_once("?socket=").ok_or_else(|| format!("{uri}: no ?socket=PATH in a unix URI"))?;
            return Ok(Target { address: Address::Unix(socket.into()), export: export.into() });
        }
        if let Some(rest) = uri.strip_prefix("nbd://") {
            let (host, export) = rest.split_once('/').unwrap_or((rest, ""));
            let address = if host.contains(':') { host.to_owned() } else { format!("{host}:10809") };
            return Ok(Target { address: Address::Tcp(address), export: export.into() });
        }
        Err(format!("{uri}: neither nbd+unix:///EXPORT?socket=PATH nor nbd://HOST:PORT/EXPORT"))
    }

    /// The default export behind a unix socket.
    pub fn unix(path: impl Into<PathBuf>) -> Target {
        Target { address: Address::Unix(path.into()), export: String::new() }
    }
}

/// A connection to either kind of socket.
#[derive(Debug)]
pub enum Stream {
    /// A connection to a Unix socket.
    Unix(UnixStream),
    /// A connection over TCP.
    Tcp(TcpStream),
}

impl Stream {
    /// Connects to a server's socket; nothing is negotiated yet.
    pub fn connect(address: &Address) -> io::Result<Stream> {
        match address {
            Address::Unix(path) => UnixStream::connect(path).map(Stream::Unix),
            Address::Tcp(address) => {
                let stream = TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }
        }
    }

    /// The same connection once more, for another thread.
    pub fn try_clone(&self) -> io::Result<Stream> {
        match self {
            Stream::Unix(s) => s.try_clone().map(Stream::Unix),
            Stream::Tcp(s) => s.try_clone().map(Stream::Tcp),
        }
    }

    /// Bounds every later read, so that a server that hangs fails the test instead of stopping it.
    pub fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        match self {
            Stream::Unix(s) => s.set_read_timeout(limit),
            Stream::Tcp(s) => s.set_read_timeout(limit),
        }
    }

    /// Neither reads nor writes wait from now on.
    pub fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Stream::Unix(s) => s.set_nonblocking(true),
            Stream::Tcp(s) => s.set_nonblocking(true),
        }
    }

    /// Hangs up in both directions; a thread blocked in a read of a clone returns.
    pub fn shutdown(&self) {
        // A socket that the server has closed already answers ENOTCONN: nothing is left to do then.
        let _ = match self {
            Stream::Unix(s) => s.shutdown(std::net::Shutdown::Both),
            Stream::Tcp(s) => s.shutdown(std::net::Shutdown::Both),
        };
    }
}

impl AsRawFd for Stream {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Stream::Unix(s) => s.as_raw_fd(),
            Stream::Tcp(s) => s.as_raw_fd(),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(s) => s.read(buffer),
            Stream::Tcp(s) => s.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(s) => s.write(bytes),
            Stream::Tcp(s) => s.write(bytes),
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads big-endian numbers off a stream.
pub trait ReadNumbers: Read {
    /// Reads a number of two bytes.
    fn u16(&mut self) -> io::Result<u16> {
        let mut b = [0; 2];
        self.read_exact(&mut b)?;
        Ok(u16::from_be_bytes(b))
    }
    /// Reads a number of four bytes.
    fn u32(&mut self) -> io::Result<u32> {
        let mut b = [0; 4];
        self.read_exact(&mut b)?;
        Ok(u32::from_be_bytes(b))
    }
    /// Reads a number of eight bytes.
    fn u64(&mut self) -> io::Result<u64> {
        let mut b = [0; 8];
        self.read_exact(&mut b)?;
        Ok(u64::from_be_bytes(b))
    }
}
impl<R: Read> ReadNumbers for R {}

/// What a server answers to an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionReply {
    /// The option that it answers.
    pub option: u32,
    /// Reply type; errors have bit 31 set.
    pub kind: u32,
    /// What the reply carries, as the option defines it.
    pub data: Vec<u8>,
}

/// Reads the server's greeting and answers with client flags; returns the handshake flags.
pub fn greet(stream: &mut Stream, client_flags: u32) -> io::Result<u16> {
    if stream.u64()? != MAGIC || stream.u64()? != OPTION_MAGIC {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not a newstyle NBD server"));
    }
    let flags = stream.u16()?;
    stream.write_all(&client_flags.to_be_bytes())?;
    Ok(flags)
}

/// Sends one option with its data.
pub fn send_option(stream: &mut Stream, option: u32, data: &[u8]) -> io::Result<()> {
    let mut bytes = OPTION_MAGIC.to_be_bytes().to_vec();
    bytes.extend_from_slice(&option.to_be_bytes());
    bytes.extend_from_slice(&(data.len() as u32).to_be_bytes());
    bytes.extend_from_slice(data);
    stream.write_all(&bytes)
}

/// Receives one reply to an option.
pub fn receive_option_reply(stream: &mut Stream) -> io::Result<OptionReply> {
    if stream.u64()? != OPTION_REPLY_MAGIC {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "an option's reply has the wrong magic"));
    }
    let option = stream.u32()?;
    let kind = stream.u32()?;
    let mut data = vec![0; stream.u32()? as usize];
    stream.read_exact(&mut data)?;
    Ok(OptionReply { option, kind, data })
}

/// Payload of NBD_OPT_GO and NBD_OPT_INFO for an export, asking for its block sizes.
pub fn go_payload(export: &str) -> Vec<u8> {
    let mut data = (export.len() as u32).to_be_bytes().to_vec();
    data.extend_from_slice(export.as_bytes());
    data.extend_from_slice(&1u16.to_be_bytes());
    data.extend_from_slice(&INFO_BLOCK_SIZE.to_be_bytes());
    data
}

/// The header of one request, in the extended form of 28 bytes.
pub fn request_header(flags: u16, command: u16, cookie: u64, offset: u64, length: u32) -> [u8; 28] {
    let mut b = [0; 28];
    b[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
    b[4..6].copy_from_slice(&flags.to_be_bytes());
    b[6..8].copy_from_slice(&command.to_be_bytes());
    b[8..16].copy_from_slice(&cookie.to_be_bytes());
    b[16..24].copy_from_slice(&offset.to_be_bytes());
    b[24..].copy_from_slice(&length.to_be_bytes());
    b
}

/// Request flag, with extended headers: a payload follows.
pub const FLAG_PAYLOAD: u16 = 1 << 5;

/// One request with an extended header.
pub fn extended_request(flags: u16, command: u16, cookie: u64, offset: u64, length: u64) -> [u8; 32] {
    let mut b = [0; 32];
    b[..4].copy_from_slice(&0x21e4_1c71u32.to_be_bytes());
    b[4..6].copy_from_slice(&flags.to_be_bytes());
    b[6..8].copy_from_slice(&command.to_be_bytes());
    b[8..16].copy_from_slice(&cookie.to_be_bytes());
    b[16..24].copy_from_slice(&offset.to_be_bytes());
    b[24..].copy_from_slice(&length.to_be_bytes());
    b
}

/// One chunk of a reply with an extended header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtendedChunk {
    /// The last one of its reply.
    pub done: bool,
    /// Kind; errors have bit 15 set.
    pub kind: u16,
    /// The number by which the request is known.
    pub cookie: u64,
    /// First byte that the request is about.
    pub offset: u64,
    /// What the chunk carries, as its kind defines it.
    pub data: Vec<u8>,
}

/// Receives one chunk of a reply.
pub fn receive_extended(stream: &mut Stream) -> io::Result<ExtendedChunk> {
    let magic = stream.u32()?;
    if magic != 0x6e8a_278c {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("extended reply with magic {magic:#x}")));
    }
    let (flags, kind) = (stream.u16()?, stream.u16()?);
    let (cookie, offset) = (stream.u64()?, stream.u64()?);
    let length = usize::try_from(stream.u64()?).ok().filter(|&length| length <= 64 << 20);
    let length = length.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "an absurd chunk"))?;
    let mut data = vec![0; length];
    stream.read_exact(&mut data)?;
    Ok(ExtendedChunk { done: flags & 1 != 0, kind, cookie, offset, data })
}

/// A request that the server answered with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerError(
    /// The protocol's error number (EIO 5, EINVAL 22, ENOSPC 28, ...).
    pub u32,
);

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NBD error {}", self.0)
    }
}

/// A connection in the transmission phase.
#[derive(Debug)]
pub struct Client {
    /// The socket, for tests that go around this type.
    pub stream: Stream,
    /// Size of the export in bytes.
    pub size: u64,
    /// The export's transmission flags, as the server has sent them.
    pub flags: u16,
    /// Largest request that the server takes.
    pub request_bytes_max: u32,
}

impl Client {
    /// Connects to an export, and negotiates until requests may follow.
    pub fn connect(target: &Target) -> io::Result<Client> {
        Client::connect_with_patience(target, Duration::from_secs(60))
    }

    /// The same, where each word of the server is waited for so long at most.
    pub fn connect_with_patience(target: &Target, patience: Duration) -> io::Result<Client> {
        let mut stream = Stream::connect(&target.address)?;
        stream.set_read_timeout(Some(patience))?;
        greet(&mut stream, 3)?;
        send_option(&mut stream, OPTION_GO, &go_payload(&target.export))?;
        let mut export = None;
        let mut request_bytes_max = REQUEST_BYTES_MAX_DEFAULT;
        loop {
            let reply = receive_option_reply(&mut stream)?;
            match reply.kind {
                REPLY_ACK => break,
                REPLY_INFO if reply.data.len() == 12 && reply.data[..2] == INFO_EXPORT.to_be_bytes() => {
                    let size = u64::from_be_bytes(reply.data[2..10].try_into().expect("eight bytes"));
                    export = Some((size, u16::from_be_bytes(reply.data[10..].try_into().expect("two bytes"))));
                }
                REPLY_INFO if reply.data.len() == 14 && reply.data[..2] == INFO_BLOCK_SIZE.to_be_bytes() => {
                    request_bytes_max = u32::from_be_bytes(reply.data[10..].try_into().expect("four bytes"));
                }
                REPLY_INFO => {}
                kind => {
                    let text = String::from_utf8_lossy(&reply.data).into_owned();
                    let message = format!("export '{}' refused by reply {kind:#x}: {text}", target.export);
                    return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
                }
            }
        }
        let (size, flags) =
            export.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "GO was acknowledged without a size"))?;
        Ok(Client { stream, size, flags, request_bytes_max })
    }

    /// Tries again until the server is there, for at most `limit`.
    pub fn connect_within(target: &Target, limit: Duration) -> io::Result<Client> {
        let begun = std::time::Instant::now();
        loop {
            match Client::connect(target) {
                Ok(client) => return Ok(client),
                Err(e) if begun.elapsed() > limit => return Err(e),
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// Splits into a sending and a receiving side for two threads.
    pub fn split(self) -> io::Result<(Stream, Stream)> {
        let receiver = self.stream.try_clone()?;
        Ok((self.stream, receiver))
    }

    /// Sends one request, and waits for nothing.
    pub fn send(
        &mut self,
        command: Command,
        flags: u16,
        cookie: u64,
        offset: u64,
        length: u32,
        payload: &[u8],
    ) -> io::Result<()> {
        send(&mut self.stream, command, flags, cookie, offset, length, payload)
    }

    /// Receives the head of one reply: cookie and error number (0: none). The data of a successful read follows.
    pub fn receive(&mut self) -> io::Result<(u64, u32)> {
        receive(&mut self.stream)
    }

    fn one(&mut self, command: Command, flags: u16, offset: u64, length: u32, payload: &[u8]) -> io::Result<u32> {
        self.send(command, flags, 1, offset, length, payload)?;
        Ok(self.receive()?.1)
    }

    /// Reads, and waits for the answer.
    pub fn read(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<Result<(), ServerError>> {
        let error = self.one(Command::Read, 0, offset, buffer.len() as u32, &[])?;
        if error == 0 {
            self.stream.read_exact(buffer)?;
        }
        Ok(as_result(error))
    }

    /// Writes, and waits for the answer.
    pub fn write(&mut self, offset: u64, bytes: &[u8], flags: u16) -> io::Result<Result<(), ServerError>> {
        self.one(Command::Write, flags, offset, bytes.len() as u32, bytes).map(as_result)
    }

    /// Flushes, and waits for the answer.
    pub fn flush(&mut self) -> io::Result<Result<(), ServerError>> {
        self.one(Command::Flush, 0, 0, 0, &[]).map(as_result)
    }

    /// Trims, and waits for the answer.
    pub fn trim(&mut self, offset: u64, length: u32) -> io::Result<Result<(), ServerError>> {
        self.one(Command::Trim, 0, offset, length, &[]).map(as_result)
    }

    /// Writes zeros, and waits for the answer.
    pub fn zero(&mut self, offset: u64, length: u32, flags: u16) -> io::Result<Result<(), ServerError>> {
        self.one(Command::WriteZeroes, flags, offset, length, &[]).map(as_result)
    }

    /// Says that nothing more follows; the server ends the connection.
    pub fn disconnect(mut self) -> io::Result<()> {
        self.send(Command::Disconnect, 0, 0, 0, 0, &[])
    }
}

/// One request of a batch.
#[derive(Clone, Debug)]
pub struct Ask {
    /// What the server is to do.
    pub command: Command,
    /// Flags of the command, such as FUA.
    pub flags: u16,
    /// First byte that it is about.
    pub offset: u64,
    /// How many bytes it is about.
    pub length: u32,
    /// Payload of a write.
    pub payload: Vec<u8>,
}

impl Client {
    /// Sends all requests without waiting, receives while sending (a client that only sends can block a server that
    /// only answers), and returns each request's error number and data in the order of the requests.
    pub fn exchange(&mut self, asks: &[Ask]) -> io::Result<Vec<(u32, Vec<u8>)>> {
        let mut sender = self.stream.try_clone()?;
        let receiver = &mut self.stream;
        std::thread::scope(|scope| {
            let sending = scope.spawn(move || -> io::Result<()> {
                for (cookie, ask) in asks.iter().enumerate() {
                    send(&mut sender, ask.command, ask.flags, cookie as u64, ask.offset, ask.length, &ask.payload)?;
                }
                Ok(())
            });
            let mut answers = vec![None; asks.len()];
            for _ in asks {
                let (cookie, error) = receive(receiver)?;
                let open = answers.get_mut(cookie as usize).filter(|a| a.is_none());
                let Some(open) = open else {
                    let message = format!("a reply for cookie {cookie}, which is not open");
                    return Err(io::Error::new(io::ErrorKind::InvalidData, message));
                };
                let ask = &asks[cookie as usize];
                let mut data =
                    vec![0; if ask.command == Command::Read && error == 0 { ask.length as usize } else { 0 }];
                receiver.read_exact(&mut data)?;
                *open = Some((error, data));
            }
            sending.join().expect("the sender does not panic")?;
            Ok(answers.into_iter().map(|a| a.expect("as many replies as requests")).collect())
        })
    }
}

fn as_result(error: u32) -> Result<(), ServerError> {
    if error == 0 { Ok(()) } else { Err(ServerError(error)) }
}

/// Sends one request with its payload in one call, so that the server sees it whole.
pub fn send(
    stream: &mut Stream,
    command: Command,
    flags: u16,
    cookie: u64,
    offset: u64,
    length: u32,
    payload: &[u8],
) -> io::Result<()> {
    let head = request_header(flags, command as u16, cookie, offset, length);
    if payload.is_empty() {
        return stream.write_all(&head);
    }
    let mut bytes = Vec::with_capacity(28 + payload.len());
    bytes.extend_from_slice(&head);
    bytes.extend_from_slice(payload);
    stream.write_all(&bytes)
}

/// Receives the head of one simple reply.
pub fn receive(stream: &mut Stream) -> io::Result<(u64, u32)> {
    let mut b = [0; 16];
    stream.read_exact(&mut b)?;
    let magic = u32::from_be_bytes(b[..4].try_into().expect("four bytes"));
    if magic != SIMPLE_REPLY_MAGIC {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("reply with magic {magic:#x}")));
    }
    let error = u32::from_be_bytes(b[4..8].try_into().expect("four bytes"));
    Ok((u64::from_be_bytes(b[8..].try_into().expect("eight bytes")), error))
}
