//! The NBD protocol's bytes: pure encode and decode, no state.
//!
//! All numbers are big-endian. The authority is `doc/proto.md` of the NetworkBlockDevice project; names here are its
//! names. A decoder never panics: it answers `None` for bytes that mean nothing.

/// First eight bytes of a server's greeting.
pub const GREETING_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// Begins every option, and the second word of the greeting ("IHAVEOPT").
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Begins every reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Begins every request of the transmission phase.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Begins every simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Begins every chunk of a structured reply.
pub const CHUNK_MAGIC: u32 = 0x668e_33ef;
/// Begins every request once extended headers are agreed on.
pub const EXTENDED_REQUEST_MAGIC: u32 = 0x21e4_1c71;
/// Begins every chunk of a reply once extended headers are agreed on.
pub const EXTENDED_CHUNK_MAGIC: u32 = 0x6e8a_278c;

/// Bytes of the greeting.
pub const GREETING_BYTES: usize = 18;
/// Bytes of the client's flags.
pub const CLIENT_FLAGS_BYTES: usize = 4;
/// Bytes before an option's payload.
pub const OPTION_HEAD_BYTES: usize = 16;
/// Bytes before an option reply's payload.
pub const OPTION_REPLY_HEAD_BYTES: usize = 20;
/// Bytes of a request.
pub const REQUEST_BYTES: usize = 28;
/// Bytes of a simple reply before its payload.
pub const SIMPLE_REPLY_BYTES: usize = 16;
/// Bytes of a chunk before its payload.
pub const CHUNK_BYTES: usize = 20;
/// Bytes of a request with an extended header.
pub const EXTENDED_REQUEST_BYTES: usize = 32;
/// Bytes of an extended chunk before its payload.
pub const EXTENDED_CHUNK_BYTES: usize = 32;

/// Longest string that the protocol allows.
pub const STRING_BYTES_MAX: usize = 4096;

/// Handshake flags of server and client: fixed newstyle.
pub const FLAG_FIXED_NEWSTYLE: u32 = 1;
/// Handshake flags of server and client: no 124 zeroes after EXPORT_NAME.
pub const FLAG_NO_ZEROES: u32 = 2;

/// Transmission flags of an export.
pub mod transmission {
    #![allow(missing_docs)] // the protocol's own names
    pub const HAS_FLAGS: u16 = 1 << 0;
    pub const READ_ONLY: u16 = 1 << 1;
    pub const SEND_FLUSH: u16 = 1 << 2;
    pub const SEND_FUA: u16 = 1 << 3;
    pub const SEND_TRIM: u16 = 1 << 5;
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub const SEND_DF: u16 = 1 << 7;
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    pub const SEND_CACHE: u16 = 1 << 10;
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
    pub const BLOCK_STATUS_PAYLOAD: u16 = 1 << 12;
}

/// Bits of a request's flags.
pub mod command_flags {
    #![allow(missing_docs)] // the protocol's own names
    pub const FUA: u16 = 1 << 0;
    pub const NO_HOLE: u16 = 1 << 1;
    pub const DF: u16 = 1 << 2;
    pub const REQ_ONE: u16 = 1 << 3;
    pub const FAST_ZERO: u16 = 1 << 4;
    pub const PAYLOAD_LEN: u16 = 1 << 5;
}

/// Options that a client may send before the transmission phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // the protocol's own names
pub enum OptionKind {
    ExportName,
    Abort,
    List,
    StartTls,
    Info,
    Go,
    StructuredReply,
    ListMetaContext,
    SetMetaContext,
    ExtendedHeaders,
    Unknown(u32),
}

impl OptionKind {
    /// The kind of this number; any number has one.
    pub fn of(number: u32) -> OptionKind {
        match number {
            1 => OptionKind::ExportName,
            2 => OptionKind::Abort,
            3 => OptionKind::List,
            5 => OptionKind::StartTls,
            6 => OptionKind::Info,
            7 => OptionKind::Go,
            8 => OptionKind::StructuredReply,
            9 => OptionKind::ListMetaContext,
            10 => OptionKind::SetMetaContext,
            11 => OptionKind::ExtendedHeaders,
            other => OptionKind::Unknown(other),
        }
    }

    /// Its number in the protocol.
    pub fn number(self) -> u32 {
        match self {
            OptionKind::ExportName => 1,
            OptionKind::Abort => 2,
            OptionKind::List => 3,
            OptionKind::StartTls => 5,
            OptionKind::Info => 6,
            OptionKind::Go => 7,
            OptionKind::StructuredReply => 8,
            OptionKind::ListMetaContext => 9,
            OptionKind::SetMetaContext => 10,
            OptionKind::ExtendedHeaders => 11,
            OptionKind::Unknown(number) => number,
        }
    }
}

/// Replies to options.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
#[allow(missing_docs)] // the protocol's own names
pub enum OptionReply {
    Ack = 1,
    Server = 2,
    Info = 3,
    MetaContext = 4,
    ErrUnsup = 0x8000_0001,
    ErrPolicy = 0x8000_0002,
    ErrInvalid = 0x8000_0003,
    ErrTlsReqd = 0x8000_0005,
    ErrUnknown = 0x8000_0006,
    ErrTooBig = 0x8000_0009,
    ErrExtHeaderReqd = 0x8000_000a,
}

/// Information items of INFO and GO.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
#[allow(missing_docs)] // the protocol's own names
pub enum InfoKind {
    Export = 0,
    Name = 1,
    Description = 2,
    BlockSize = 3,
}

/// Metadata contexts that a client may select.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Context {
    /// `base:allocation`: bit 0 hole, bit 1 reads as zeros.
    Allocation = 1,
    /// `forebay:dirty`: bit 0 not yet durable in the backing.
    Dirty = 2,
    /// `forebay:tier`: bit 0 in the tier or its cache, so that a read does not wait for the backing.
    Tier = 3,
}

impl Context {
    /// All of them, in the order in which they are listed and answered.
    pub const ALL: [Context; 3] = [Context::Allocation, Context::Dirty, Context::Tier];

    /// Its name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Context::Allocation => "base:allocation",
            Context::Dirty => "forebay:dirty",
            Context::Tier => "forebay:tier",
        }
    }

    /// Its number in block status replies.
    pub fn id(self) -> u32 {
        self as u32
    }

    /// The one of this number.
    pub fn of(id: u32) -> Option<Context> {
        Context::ALL.into_iter().find(|context| context.id() == id)
    }
}

/// Contexts that a session has selected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ContextSet(u8);

impl ContextSet {
    /// Selects one more context.
    pub fn insert(&mut self, context: Context) {
        self.0 |= 1 << context.id();
    }
    /// True when it is selected.
    pub fn contains(self, context: Context) -> bool {
        self.0 & (1 << context.id()) != 0
    }
    /// True when none is selected.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
    /// Those selected, in the order of [`Context::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Context> {
        Context::ALL.into_iter().filter(move |&context| self.contains(context))
    }
}

/// Commands of the transmission phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // the protocol's own names
pub enum Command {
    Read,
    Write,
    Disconnect,
    Flush,
    Trim,
    Cache,
    WriteZeroes,
    BlockStatus,
    Unknown(u16),
}

impl Command {
    /// The command of this number; any number has one.
    #[inline]
    pub fn of(number: u16) -> Command {
        match number {
            0 => Command::Read,
            1 => Command::Write,
            2 => Command::Disconnect,
            3 => Command::Flush,
            4 => Command::Trim,
            5 => Command::Cache,
            6 => Command::WriteZeroes,
            7 => Command::BlockStatus,
            other => Command::Unknown(other),
        }
    }

    /// Its number in the protocol.
    pub fn number(self) -> u16 {
        match self {
            Command::Read => 0,
            Command::Write => 1,
            Command::Disconnect => 2,
            Command::Flush => 3,
            Command::Trim => 4,
            Command::Cache => 5,
            Command::WriteZeroes => 6,
            Command::BlockStatus => 7,
            Command::Unknown(number) => number,
        }
    }

    /// Flags that the command may carry.
    pub fn flags_allowed(self, framing: Framing) -> u16 {
        use command_flags::*;
        let dont_fragment = if framing.has_chunks() { DF } else { 0 };
        let payload = if framing == Framing::Extended { PAYLOAD_LEN } else { 0 };
        match self {
            Command::Read => FUA | dont_fragment,
            Command::Write => FUA | payload,
            Command::Flush | Command::Trim | Command::Cache => FUA,
            Command::Disconnect => FUA,
            Command::WriteZeroes => FUA | NO_HOLE | FAST_ZERO,
            Command::BlockStatus => FUA | REQ_ONE | payload,
            Command::Unknown(_) => 0,
        }
    }
}

/// How requests and replies are framed, as negotiated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Framing {
    /// Requests of 28 bytes, simple replies.
    #[default]
    Simple,
    /// Requests of 28 bytes, replies in chunks.
    Structured,
    /// Requests and chunks with headers of 32 bytes and lengths of 64 bits.
    Extended,
}

impl Framing {
    /// Replies come in chunks.
    pub fn has_chunks(self) -> bool {
        match self {
            Framing::Simple => false,
            Framing::Structured | Framing::Extended => true,
        }
    }

    /// Bytes of a request's header.
    pub fn request_bytes(self) -> usize {
        match self {
            Framing::Simple | Framing::Structured => REQUEST_BYTES,
            Framing::Extended => EXTENDED_REQUEST_BYTES,
        }
    }

    /// Takes a request's header from the start of `bytes`.
    #[inline]
    pub fn decode_request(self, bytes: &[u8]) -> HeadDecoded {
        let head = match self {
            Framing::Simple | Framing::Structured => bytes.first_chunk().map(RequestHead::decode),
            Framing::Extended => bytes.first_chunk().map(RequestHead::decode_extended),
        };
        match head {
            None => HeadDecoded::Incomplete,
            Some(None) => HeadDecoded::WrongMagic,
            Some(Some(head)) => HeadDecoded::Whole(head, self.request_bytes()),
        }
    }
}

/// What [`Framing::decode_request`] has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeadDecoded {
    /// More bytes are needed.
    Incomplete,
    /// The stream is out of step and nothing behind it can be trusted.
    WrongMagic,
    /// A header of so many bytes.
    Whole(RequestHead, usize),
}

/// A request's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestHead {
    /// Bits of [`command_flags`], and whatever else the client set.
    pub flags: u16,
    /// What is asked.
    pub command: Command,
    /// The client's name for it, returned in the reply.
    pub cookie: u64,
    /// First byte of the export that is meant.
    pub offset: u64,
    /// Bytes; of the payload where [`RequestHead::has_payload`], else of the volume.
    pub length: u64,
}

impl RequestHead {
    /// Whether `length` bytes follow it. With extended headers a flag says so, else the command.
    pub fn has_payload(&self, framing: Framing) -> bool {
        match framing {
            Framing::Simple | Framing::Structured => self.command == Command::Write,
            Framing::Extended => self.flags & command_flags::PAYLOAD_LEN != 0,
        }
    }

    /// To bytes.
    ///
    /// # Panics
    /// When the length has more than 32 bits: only an extended header holds it.
    pub fn encode(&self) -> [u8; REQUEST_BYTES] {
        let length = u32::try_from(self.length).expect("a compact header has 32 bits for the length");
        let mut b = [0; REQUEST_BYTES];
        b[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        b[4..6].copy_from_slice(&self.flags.to_be_bytes());
        b[6..8].copy_from_slice(&self.command.number().to_be_bytes());
        b[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        b[16..24].copy_from_slice(&self.offset.to_be_bytes());
        b[24..28].copy_from_slice(&length.to_be_bytes());
        b
    }

    /// To bytes, as an extended header.
    pub fn encode_extended(&self) -> [u8; EXTENDED_REQUEST_BYTES] {
        let mut b = [0; EXTENDED_REQUEST_BYTES];
        b[..24].copy_from_slice(&RequestHead { length: 0, ..*self }.encode()[..24]);
        b[..4].copy_from_slice(&EXTENDED_REQUEST_MAGIC.to_be_bytes());
        b[24..].copy_from_slice(&self.length.to_be_bytes());
        b
    }

    /// From bytes; `None` when the magic is wrong.
    #[inline]
    pub fn decode(b: &[u8; REQUEST_BYTES]) -> Option<RequestHead> {
        (get_u32(b, 0) == REQUEST_MAGIC).then(|| Self::with_length(b, get_u32(b, 24).into()))
    }

    /// From the bytes of an extended header; `None` when the magic is wrong.
    #[inline]
    pub fn decode_extended(b: &[u8; EXTENDED_REQUEST_BYTES]) -> Option<RequestHead> {
        (get_u32(b, 0) == EXTENDED_REQUEST_MAGIC).then(|| Self::with_length(b, get_u64(b, 24)))
    }

    /// Both headers are the same up to the length.
    #[inline]
    fn with_length(b: &[u8], length: u64) -> RequestHead {
        RequestHead {
            flags: get_u16(b, 4),
            command: Command::of(get_u16(b, 6)),
            cookie: get_u64(b, 8),
            offset: get_u64(b, 16),
            length,
        }
    }
}

/// Error numbers of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
#[allow(missing_docs)] // the protocol's own names
pub enum ErrorCode {
    Perm = 1,
    Io = 5,
    Invalid = 22,
    NoSpace = 28,
    Shutdown = 108,
}

/// Kinds of chunks in structured replies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
#[allow(missing_docs)] // the protocol's own names
pub enum ChunkKind {
    None = 0,
    OffsetData = 1,
    OffsetHole = 2,
    BlockStatus = 5,
    BlockStatusExt = 6,
    Error = 0x8001,
}

/// Chunk flag: the last one of its reply.
pub const CHUNK_DONE: u16 = 1;

/// A simple reply's header; `error` 0 is success.
pub fn simple_reply(error: u32, cookie: u64) -> [u8; SIMPLE_REPLY_BYTES] {
    let mut b = [0; SIMPLE_REPLY_BYTES];
    b[..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
    b[4..8].copy_from_slice(&error.to_be_bytes());
    b[8..].copy_from_slice(&cookie.to_be_bytes());
    b
}

/// A simple reply's header as `(error, cookie)`.
pub fn decode_simple_reply(b: &[u8; SIMPLE_REPLY_BYTES]) -> Option<(u32, u64)> {
    (get_u32(b, 0) == SIMPLE_REPLY_MAGIC).then(|| (get_u32(b, 4), get_u64(b, 8)))
}

/// A chunk's header; `length` is that of the payload behind it.
pub fn chunk(kind: ChunkKind, done: bool, cookie: u64, length: u32) -> [u8; CHUNK_BYTES] {
    let mut b = [0; CHUNK_BYTES];
    b[..4].copy_from_slice(&CHUNK_MAGIC.to_be_bytes());
    b[4..6].copy_from_slice(&(if done { CHUNK_DONE } else { 0 }).to_be_bytes());
    b[6..8].copy_from_slice(&(kind as u16).to_be_bytes());
    b[8..16].copy_from_slice(&cookie.to_be_bytes());
    b[16..].copy_from_slice(&length.to_be_bytes());
    b
}

/// A chunk's header, as who has asked finds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkHead {
    /// Nothing follows it in its reply.
    pub done: bool,
    /// None: of a kind that this side knows nothing of.
    pub kind: Option<ChunkKind>,
    /// Cookie of the request that it answers.
    pub cookie: u64,
    /// Bytes of the payload behind it.
    pub length: u64,
}

/// An extended chunk's header; `None` when the magic is wrong.
pub fn decode_extended_chunk(b: &[u8; EXTENDED_CHUNK_BYTES]) -> Option<ChunkHead> {
    const KINDS: [ChunkKind; 6] = [
        ChunkKind::None,
        ChunkKind::OffsetData,
        ChunkKind::OffsetHole,
        ChunkKind::BlockStatus,
        ChunkKind::BlockStatusExt,
        ChunkKind::Error,
    ];
    (get_u32(b, 0) == EXTENDED_CHUNK_MAGIC).then(|| ChunkHead {
        done: get_u16(b, 4) & CHUNK_DONE != 0,
        kind: KINDS.into_iter().find(|kind| *kind as u16 == get_u16(b, 6)),
        cookie: get_u64(b, 8),
        length: get_u64(b, 24),
    })
}

/// An extended chunk's header; `offset` is that of the request, `length` that of the payload behind it.
pub fn extended_chunk(
    kind: ChunkKind,
    done: bool,
    cookie: u64,
    offset: u64,
    length: u64,
) -> [u8; EXTENDED_CHUNK_BYTES] {
    let mut b = [0; EXTENDED_CHUNK_BYTES];
    b[..16].copy_from_slice(&chunk(kind, done, cookie, 0)[..16]);
    b[..4].copy_from_slice(&EXTENDED_CHUNK_MAGIC.to_be_bytes());
    b[16..24].copy_from_slice(&offset.to_be_bytes());
    b[24..].copy_from_slice(&length.to_be_bytes());
    b
}

/// Most bytes of the payload that a block status request may carry: a length, and each context once.
pub const STATUS_PAYLOAD_BYTES_MAX: usize = 8 + 4 * Context::ALL.len();

/// Payload of a block status request: which contexts it asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StatusPayload {
    /// Bytes of the volume, from the request's offset on.
    pub length: u64,
    /// The contexts that it asks for.
    pub contexts: ContextSet,
}

impl StatusPayload {
    /// From bytes; `None` when their number is wrong, or a context is unknown or named twice.
    pub fn decode(b: &[u8]) -> Option<StatusPayload> {
        let (length, ids) = b.split_first_chunk::<8>()?;
        if !ids.len().is_multiple_of(4) {
            return None;
        }
        let mut contexts = ContextSet::default();
        for id in ids.chunks_exact(4) {
            let context = Context::of(get_u32(id, 0)).filter(|&context| !contexts.contains(context))?;
            contexts.insert(context);
        }
        Some(StatusPayload { length: u64::from_be_bytes(*length), contexts })
    }
}

/// The server's greeting.
pub fn greeting() -> [u8; GREETING_BYTES] {
    let mut b = [0; GREETING_BYTES];
    b[..8].copy_from_slice(&GREETING_MAGIC.to_be_bytes());
    b[8..16].copy_from_slice(&OPTION_MAGIC.to_be_bytes());
    b[16..].copy_from_slice(&((FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES) as u16).to_be_bytes());
    b
}

/// An option's header as `(option, payload bytes)`; `None` when the magic is wrong.
pub fn decode_option_head(b: &[u8; OPTION_HEAD_BYTES]) -> Option<(OptionKind, u32)> {
    (get_u64(b, 0) == OPTION_MAGIC).then(|| (OptionKind::of(get_u32(b, 8)), get_u32(b, 12)))
}

/// Appends an option with its payload, as a client sends it.
pub fn put_option(out: &mut Vec<u8>, option: u32, payload: &[u8]) {
    out.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
    out.extend_from_slice(&option.to_be_bytes());
    out.extend_from_slice(&(payload.len() as u32).to_be_bytes());
    out.extend_from_slice(payload);
}

/// Appends a reply to an option.
pub fn put_option_reply(out: &mut Vec<u8>, option: OptionKind, reply: OptionReply, payload: &[u8]) {
    out.extend_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
    out.extend_from_slice(&option.number().to_be_bytes());
    out.extend_from_slice(&(reply as u32).to_be_bytes());
    out.extend_from_slice(&(payload.len() as u32).to_be_bytes());
    out.extend_from_slice(payload);
}

/// Why an option's payload cannot be taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Malformed {
    /// Lengths contradict each other, or a string is not UTF-8.
    Invalid,
    /// A string is longer than [`STRING_BYTES_MAX`].
    TooBig,
}

/// Payload of INFO and GO.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InfoQuery<'a> {
    /// Name of the export that is asked for.
    pub name: &'a str,
    /// The client asks for [`InfoKind::Name`].
    pub wants_name: bool,
    /// The client asks for [`InfoKind::Description`].
    pub wants_description: bool,
    /// The client asks for [`InfoKind::BlockSize`].
    pub wants_block_size: bool,
}

impl<'a> InfoQuery<'a> {
    /// Reads an option's payload as the client has sent it.
    pub fn decode(b: &'a [u8]) -> Result<InfoQuery<'a>, Malformed> {
        let (name, rest) = split_string(b)?;
        let (count, items) = rest.split_at_checked(2).ok_or(Malformed::Invalid)?;
        let count = usize::from(get_u16(count, 0));
        if items.len() != count * 2 {
            return Err(Malformed::Invalid);
        }
        let wants = |kind: InfoKind| items.chunks_exact(2).any(|item| get_u16(item, 0) == kind as u16);
        Ok(InfoQuery {
            name,
            wants_name: wants(InfoKind::Name),
            wants_description: wants(InfoKind::Description),
            wants_block_size: wants(InfoKind::BlockSize),
        })
    }
}

/// Payload of LIST_META_CONTEXT and SET_META_CONTEXT.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContextQuery<'a> {
    /// Name of the export that is asked for.
    pub name: &'a str,
    /// Context names, or for a list also `namespace:`; contains what the protocol allows, known or not.
    pub queries: Vec<&'a str>,
}

impl<'a> ContextQuery<'a> {
    /// Reads an option's payload as the client has sent it.
    pub fn decode(b: &'a [u8]) -> Result<ContextQuery<'a>, Malformed> {
        let (name, rest) = split_string(b)?;
        let (count, mut rest) = rest.split_at_checked(4).ok_or(Malformed::Invalid)?;
        let mut queries = Vec::new();
        // The count is the client's word: each query must be there before it takes memory.
        for _ in 0..get_u32(count, 0) {
            let (query, behind) = split_string(rest)?;
            queries.push(query);
            rest = behind;
        }
        if !rest.is_empty() {
            return Err(Malformed::Invalid);
        }
        Ok(ContextQuery { name, queries })
    }
}

/// A string with its length before it, and what follows.
fn split_string(b: &[u8]) -> Result<(&str, &[u8]), Malformed> {
    let (length, rest) = b.split_at_checked(4).ok_or(Malformed::Invalid)?;
    let length = get_u32(length, 0) as usize;
    if length > STRING_BYTES_MAX {
        return Err(Malformed::TooBig);
    }
    let (string, rest) = rest.split_at_checked(length).ok_or(Malformed::Invalid)?;
    Ok((core::str::from_utf8(string).map_err(|_| Malformed::Invalid)?, rest))
}

#[inline]
fn get_u16(b: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(b[at..at + 2].try_into().expect("two bytes"))
}
#[inline]
fn get_u32(b: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(b[at..at + 4].try_into().expect("four bytes"))
}
#[inline]
fn get_u64(b: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(b[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn request_has_the_bytes_of_the_protocol() {
        let head = RequestHead {
            flags: command_flags::FUA,
            command: Command::Write,
            cookie: 0x1122_3344_5566_7788,
            offset: 0x0102_0304_0506_0708,
            length: 0x1000,
        };
        let bytes = head.encode();
        assert_eq!(
            bytes,
            [
                0x25, 0x60, 0x95, 0x13, 0, 1, 0, 1, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 1, 2, 3, 4, 5, 6,
                7, 8, 0, 0, 0x10, 0
            ]
        );
        assert_eq!(RequestHead::decode(&bytes), Some(head));
    }

    #[test]
    fn replies_have_the_bytes_of_the_protocol() {
        assert_eq!(simple_reply(22, 7), [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 22, 0, 0, 0, 0, 0, 0, 0, 7]);
        assert_eq!(
            chunk(ChunkKind::OffsetHole, true, 9, 12),
            [0x66, 0x8e, 0x33, 0xef, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 12]
        );
        assert_eq!(&greeting(), b"NBDMAGICIHAVEOPT\0\x03");
        let mut out = Vec::new();
        put_option_reply(&mut out, OptionKind::Go, OptionReply::ErrUnknown, b"x");
        assert_eq!(out, b"\0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x07\x80\0\0\x06\0\0\0\x01x");
    }

    #[test]
    fn extended_headers_have_the_bytes_of_the_protocol() {
        let head = RequestHead {
            flags: command_flags::PAYLOAD_LEN | command_flags::FUA,
            command: Command::Write,
            cookie: 0x1122_3344_5566_7788,
            offset: 0x0102_0304_0506_0708,
            length: 0x1_0000_1000,
        };
        let bytes = head.encode_extended();
        assert_eq!(
            bytes,
            [
                0x21, 0xe4, 0x1c, 0x71, 0, 0x21, 0, 1, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 1, 2, 3, 4, 5,
                6, 7, 8, 0, 0, 0, 1, 0, 0, 0x10, 0
            ]
        );
        assert_eq!(Framing::Extended.decode_request(&bytes), HeadDecoded::Whole(head, 32));
        assert_eq!(Framing::Extended.decode_request(&bytes[..31]), HeadDecoded::Incomplete);
        // Neither framing takes the other's magic.
        assert_eq!(Framing::Structured.decode_request(&bytes), HeadDecoded::WrongMagic);
        let compact = RequestHead { length: 512, ..head }.encode();
        assert_eq!(Framing::Extended.decode_request(&[&compact[..], &[0; 4]].concat()), HeadDecoded::WrongMagic);
        assert_eq!(
            extended_chunk(ChunkKind::BlockStatusExt, true, 9, 0x0102_0304_0506_0708, 24),
            [
                0x6e, 0x8a, 0x27, 0x8c, 0, 1, 0, 6, 0, 0, 0, 0, 0, 0, 0, 9, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0,
                0, 24
            ]
        );
        for (kind, done) in [(ChunkKind::OffsetData, false), (ChunkKind::Error, true)] {
            let found = decode_extended_chunk(&extended_chunk(kind, done, 7, 4096, 1 << 33));
            assert_eq!(found, Some(ChunkHead { done, kind: Some(kind), cookie: 7, length: 1 << 33 }));
        }
        assert_eq!(decode_extended_chunk(&[0; 32]), None);
        assert_eq!(OptionReply::ErrTlsReqd as u32, (1 << 31) + 5);
        assert_eq!(OptionReply::ErrExtHeaderReqd as u32, (1 << 31) + 10);
    }

    #[test]
    fn payload_of_block_status_names_each_context_once() {
        let payload = |ids: &[u32]| {
            let mut b = 0x5_0000_0000u64.to_be_bytes().to_vec();
            ids.iter().for_each(|id| b.extend_from_slice(&id.to_be_bytes()));
            b
        };
        let mut contexts = ContextSet::default();
        assert_eq!(StatusPayload::decode(&payload(&[])), Some(StatusPayload { length: 0x5_0000_0000, contexts }));
        contexts.insert(Context::Tier);
        contexts.insert(Context::Allocation);
        let found = StatusPayload::decode(&payload(&[Context::Tier.id(), Context::Allocation.id()]));
        assert_eq!(found, Some(StatusPayload { length: 0x5_0000_0000, contexts }));
        assert_eq!(StatusPayload::decode(&payload(&[1, 1])), None, "twice");
        assert_eq!(StatusPayload::decode(&payload(&[0])), None, "unknown");
        assert_eq!(StatusPayload::decode(&payload(&[1])[..11]), None);
        assert_eq!(StatusPayload::decode(&[0; 7]), None);
    }

    #[test]
    fn numbers_of_options_and_commands_survive_a_round() {
        for number in 0..20 {
            assert_eq!(OptionKind::of(number).number(), number);
            assert_eq!(Command::of(number as u16).number(), number as u16);
        }
        assert_eq!(OptionKind::of(4), OptionKind::Unknown(4), "PEEK_EXPORT was withdrawn");
    }

    #[test]
    fn strings_are_bounded_and_whole() {
        let long = [&(STRING_BYTES_MAX as u32 + 1).to_be_bytes()[..], &[b'a'; STRING_BYTES_MAX + 1]].concat();
        assert_eq!(split_string(&long), Err(Malformed::TooBig));
        assert_eq!(split_string(b"\0\0\0\x04abc"), Err(Malformed::Invalid));
        assert_eq!(split_string(b"\0\0\0\x01\xff"), Err(Malformed::Invalid));
        assert_eq!(split_string(b"\0\0\0\x02abc"), Ok(("ab", &b"c"[..])));
    }

    #[test]
    fn queries_must_fill_their_payload_exactly() {
        assert!(InfoQuery::decode(b"\0\0\0\0\0\x01\0\x03").unwrap().wants_block_size);
        assert_eq!(InfoQuery::decode(b"\0\0\0\0\0\x01\0"), Err(Malformed::Invalid));
        assert_eq!(InfoQuery::decode(b"\0\0\0\0\0\0\0"), Err(Malformed::Invalid));
        let two = b"\0\0\0\x01v\0\0\0\x02\0\0\0\x01a\0\0\0\x01b";
        assert_eq!(ContextQuery::decode(two), Ok(ContextQuery { name: "v", queries: vec!["a", "b"] }));
        assert_eq!(ContextQuery::decode(&[&two[..], b"!"].concat()), Err(Malformed::Invalid));
        assert_eq!(ContextQuery::decode(b"\0\0\0\0\xff\xff\xff\xff"), Err(Malformed::Invalid));
    }

    proptest! {
        #[test]
        fn decoders_take_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = InfoQuery::decode(&bytes);
            let _ = ContextQuery::decode(&bytes);
            if let Some(head) = bytes.first_chunk() {
                let _ = RequestHead::decode(head);
            }
            let _ = Framing::Extended.decode_request(&bytes);
            let _ = StatusPayload::decode(&bytes);
            if let Some(head) = bytes.first_chunk() {
                let _ = decode_option_head(head);
            }
            if let Some(head) = bytes.first_chunk() {
                let _ = decode_simple_reply(head);
            }
        }

        #[test]
        fn requests_survive_a_round(flags: u16, number: u16, cookie: u64, offset: u64, length: u64) {
            let head = RequestHead { flags, command: Command::of(number), cookie, offset, length };
            prop_assert_eq!(RequestHead::decode_extended(&head.encode_extended()), Some(head));
            let head = RequestHead { length: length >> 32, ..head };
            prop_assert_eq!(RequestHead::decode(&head.encode()), Some(head));
        }
    }
}
