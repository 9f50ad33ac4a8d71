//! What goes over a channel between two nodes, byte by byte: pure encode and decode. `docs/protocol.md` draws the same
//! layouts under "Bytes on a link".
//!
//! ```text
//! channel = hello | start | frame, frame, ...      frame = head | body | payload
//! ```
//!
//! Invariants:
//! - Every length is bounded by a constant here and checked before anything is kept for it.
//! - A head and a body carry a CRC-32C. A payload carries none: each of its blocks is verified against the checksum of
//!   its record (S4), which is bound to volume, block and term.
//! - A decoder gives `Err(reason)`; bytes of a peer are a value to handle, never a panic. What it takes and is
//!   encoded again is decoded to the same.
//! - The hello and the refusal never change their layout, so that any two versions can say why they part.
//!
//! Left to others: who may speak (certificates, io), when frames go again and on which channel (io), what a message
//! means (`volume`, `ownership`).

mod message;

pub use message::{decode_message, encode_message, payload_blocks, records_of, seal_cached, version_of};

use crate::cluster::{Host, NodeId};
use crate::format::{Reason, crc32c};
use crate::types::*;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// Version that this code speaks: 2 has `Ask` and `Cached`, 3 has `Know`, `Known` and `Said`.
pub const WIRE_VERSION: u16 = 3;
/// Oldest version that it still speaks.
pub const WIRE_VERSION_MIN: u16 = 1;
/// Bytes of every frame's head.
pub const HEAD_BYTES: usize = 32;
/// Longest body: a hello of a later version, or an `Append` full of records.
pub const BODY_BYTES_MAX: u32 = 64 << 10;
/// Most records of one `Append`.
pub const RECORDS_MAX: usize = 1024;
/// Most payload blocks of one `Append`: 1 MiB. A link carries whole frames one after the other on a channel, and what is
/// urgent waits for the end of the one under way: 8 ms on a link of 1 Gbit/s.
pub const PAYLOAD_BLOCKS_MAX: usize = 256;
/// Longest payload, as it is in memory.
pub const PAYLOAD_BYTES_MAX: u32 = PAYLOAD_BLOCKS_MAX as u32 * BLOCK_BYTES as u32;
/// Longest name of a node: a label of the domain name system, which is what certificates name.
pub const NAME_BYTES_MAX: usize = 63;
/// Bytes of the body of a hello of this version; 16 more where it names a volume.
pub const HELLO_BYTES: usize = 144;
/// No link: a connection of a node that forwards its clients' requests to the owner of a volume (F1), which the hello names.
pub const LANE_FORWARD: u16 = u16::MAX;

const FRAME_MAGIC: [u8; 2] = *b"Fb";
const HELLO_MAGIC: [u8; 8] = *b"FBLINK\0\0";
/// A hello of a later version may be longer; what is behind the known fields is skipped.
const HELLO_BYTES_MAX: u32 = 1024;

/// What a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameKind {
    /// First on every channel, from both sides.
    Hello,
    /// Last on a channel: why it ends.
    Refusal,
    /// Second on every channel: where the sender's numbers stand.
    Start,
    /// A message of the protocol with its payload; numbered, acknowledged, sent again.
    Message,
    /// What the receiver has.
    Acknowledge,
    /// Asks for a [`FrameKind::Pong`].
    Ping,
    /// Answers a [`FrameKind::Ping`].
    Pong,
    /// The owner lets a node in that forwards for its clients; what follows is NBD.
    Entered,
}

impl FrameKind {
    const ALL: [(FrameKind, u8); 8] = [
        (FrameKind::Hello, 1),
        (FrameKind::Refusal, 2),
        (FrameKind::Start, 3),
        (FrameKind::Message, 4),
        (FrameKind::Acknowledge, 5),
        (FrameKind::Ping, 6),
        (FrameKind::Pong, 7),
        (FrameKind::Entered, 8),
    ];

    /// The lengths that a body of this kind may have.
    fn body_bytes(self) -> core::ops::RangeInclusive<u32> {
        match self {
            FrameKind::Hello => HELLO_BYTES as u32..=HELLO_BYTES_MAX,
            FrameKind::Refusal | FrameKind::Start | FrameKind::Ping | FrameKind::Pong => 8..=8,
            FrameKind::Acknowledge => 16..=16,
            FrameKind::Entered => 24..=24,
            FrameKind::Message => message::ENVELOPE_BYTES as u32..=BODY_BYTES_MAX,
        }
    }
}

/// How a payload lies in its frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Packing {
    /// As it is in memory.
    Plain,
    /// One LZ4 block.
    Lz4,
    /// One zstd frame.
    Zstd,
}

impl Packing {
    const ALL: [(Packing, u8); 3] = [(Packing::Plain, 0), (Packing::Lz4, 1), (Packing::Zstd, 2)];
}

fn code<T: Copy + PartialEq>(all: &[(T, u8)], value: T) -> u8 {
    all.iter().find(|(each, _)| *each == value).expect("every case stands in its table").1
}

fn of_code<T: Copy>(all: &[(T, u8)], code: u8) -> Option<T> {
    all.iter().find(|(_, each)| *each == code).map(|(value, _)| *value)
}

/// Beginning of every frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameHead {
    /// Kind of the frame, which says how its body is read.
    pub kind: FrameKind,
    /// How the payload is packed.
    pub packing: Packing,
    /// Bytes of the body, which follows the head.
    pub body_bytes: u32,
    /// Bytes of the payload as it follows the body.
    pub payload_bytes: u32,
    /// Bytes of the payload unpacked: whole blocks.
    pub unpacked_bytes: u32,
    /// Number of a message on its link, from 1 on; 0 for everything else.
    pub sequence: u64,
    /// CRC-32C of the body.
    pub body_checksum: u32,
}

impl FrameHead {
    /// Head of a frame that carries a message.
    pub fn of_message(sequence: u64, body: &[u8], packing: Packing, payload_bytes: u32, unpacked_bytes: u32) -> Self {
        FrameHead {
            kind: FrameKind::Message,
            packing,
            body_bytes: body.len() as u32,
            payload_bytes,
            unpacked_bytes,
            sequence,
            body_checksum: crc32c(body),
        }
    }

    /// The head as it is sent, with its own checksum at the end.
    pub fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut b = [0u8; HEAD_BYTES];
        b[..2].copy_from_slice(&FRAME_MAGIC);
        b[2] = code(&FrameKind::ALL, self.kind);
        b[3] = code(&Packing::ALL, self.packing);
        b[4..8].copy_from_slice(&self.body_bytes.to_le_bytes());
        b[8..12].copy_from_slice(&self.payload_bytes.to_le_bytes());
        b[12..16].copy_from_slice(&self.unpacked_bytes.to_le_bytes());
        b[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        b[24..28].copy_from_slice(&self.body_checksum.to_le_bytes());
        let sum = crc32c(&b[..28]);
        b[28..].copy_from_slice(&sum.to_le_bytes());
        b
    }

    /// Reads a head; wrong magic, checksum, kind or length is an error.
    pub fn decode(b: &[u8; HEAD_BYTES]) -> Result<FrameHead, Reason> {
        if b[..2] != FRAME_MAGIC {
            return Err("frame: wrong magic");
        }
        let word = |at: usize| u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
        if crc32c(&b[..28]) != word(28) {
            return Err("frame: checksum mismatch in its head");
        }
        let head = FrameHead {
            kind: of_code(&FrameKind::ALL, b[2]).ok_or("frame: unknown kind")?,
            packing: of_code(&Packing::ALL, b[3]).ok_or("frame: unknown packing")?,
            body_bytes: word(4),
            payload_bytes: word(8),
            unpacked_bytes: word(12),
            sequence: u64::from(word(16)) | u64::from(word(20)) << 32,
            body_checksum: word(24),
        };
        match head.invalid() {
            Some(reason) => Err(reason),
            None => Ok(head),
        }
    }

    fn invalid(&self) -> Option<Reason> {
        if !self.kind.body_bytes().contains(&self.body_bytes) {
            return Some("frame: its kind has no body of this length");
        }
        if (self.kind == FrameKind::Message) != (self.sequence > 0) {
            return Some("frame: messages are numbered, and nothing else is");
        }
        if self.unpacked_bytes > PAYLOAD_BYTES_MAX {
            return Some("frame: more payload than a message may have");
        }
        if !u64::from(self.unpacked_bytes).is_multiple_of(BLOCK_BYTES) {
            return Some("frame: its payload is not whole blocks");
        }
        if self.kind != FrameKind::Message && self.unpacked_bytes > 0 {
            return Some("frame: only messages have a payload");
        }
        match self.packing {
            Packing::Plain if self.payload_bytes != self.unpacked_bytes => Some("frame: two lengths of one payload"),
            Packing::Lz4 | Packing::Zstd if self.payload_bytes == 0 => Some("frame: a packed payload of no bytes"),
            Packing::Lz4 | Packing::Zstd if self.payload_bytes >= self.unpacked_bytes => {
                Some("frame: a packed payload that is not shorter")
            }
            Packing::Plain | Packing::Lz4 | Packing::Zstd => None,
        }
    }

    /// Whether these are the body's bytes.
    pub fn check_body(&self, body: &[u8]) -> Result<(), Reason> {
        if crc32c(body) == self.body_checksum { Ok(()) } else { Err("frame: checksum mismatch in its body") }
    }
}

/// Who speaks on a channel, and in which versions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hello {
    /// Oldest version that the sender speaks.
    pub wire_min: u16,
    /// Newest version that the sender speaks.
    pub wire_max: u16,
    /// Which of the links between the two nodes: each has its own numbers and its own thread.
    pub lane: u16,
    /// Which channel of the link: an index into its pairs of addresses.
    pub channel: u16,
    /// The cluster. Nodes of different clusters do not talk.
    pub cluster: [u8; 16],
    /// Node that speaks, by its number.
    pub node: NodeId,
    /// Drawn anew whenever the sender's end of the link begins with nothing: at each start of its process.
    pub session: u64,
    /// Where it runs.
    pub host: Host,
    /// Its name, which its certificate must name.
    pub name: NodeName,
    /// The volume whose owner is called; on [`LANE_FORWARD`] only, and always there.
    pub volume: Option<[u8; 16]>,
}

/// Name of a node, of 1 to [`NAME_BYTES_MAX`] lower-case letters, digits, `-` and `_`, so that a certificate can name it
/// (where capitals make no difference) and no terminal is surprised by it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeName(String);

impl NodeName {
    /// Takes a name that is of the form above, or says what that is.
    pub fn new(name: &str) -> Result<NodeName, Reason> {
        let length_fits = (1..=NAME_BYTES_MAX).contains(&name.len());
        let plain = name.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_'));
        match length_fits && plain {
            true => Ok(NodeName(name.into())),
            false => Err("name of a node: 1 to 63 lower-case letters, digits, - and _"),
        }
    }

    /// The name as certificates and people write it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Hello {
    /// The version that both speak: the newest.
    pub fn version_with(&self, other: &Hello) -> Result<u16, Rejection> {
        let version = self.wire_max.min(other.wire_max);
        if version >= self.wire_min.max(other.wire_min) { Ok(version) } else { Err(Rejection::NoCommonVersion) }
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&HELLO_MAGIC);
        for number in [self.wire_min, self.wire_max, self.lane, self.channel] {
            put_u16(out, number);
        }
        out.extend_from_slice(&self.cluster);
        put_u64(out, self.node.0);
        put_u64(out, self.session);
        put_host(out, &self.host);
        let name = self.name.as_str().as_bytes();
        out.push(name.len() as u8);
        out.extend_from_slice(name);
        out.resize(out.len() + NAME_BYTES_MAX - name.len(), 0);
        debug_assert_eq!(self.volume.is_some(), self.lane == LANE_FORWARD);
        self.volume.iter().for_each(|volume| out.extend_from_slice(volume));
    }

    fn take(bytes: &mut Bytes<'_>) -> Result<Hello, Reason> {
        if bytes.array()? != HELLO_MAGIC {
            return Err("hello: wrong magic");
        }
        let [wire_min, wire_max, lane, channel] = [bytes.u16()?, bytes.u16()?, bytes.u16()?, bytes.u16()?];
        if wire_min == 0 || wire_min > wire_max {
            return Err("hello: no version is offered");
        }
        let cluster = bytes.array()?;
        let (node, session) = (NodeId(bytes.u64()?), bytes.u64()?);
        let host = bytes.host()?;
        let length = usize::from(bytes.u8()?);
        let field: [u8; NAME_BYTES_MAX] = bytes.array()?;
        let (name, rest) = field.split_at_checked(length).ok_or("hello: a name longer than its field")?;
        if rest.iter().any(|&b| b != 0) {
            return Err("hello: something behind its name");
        }
        let name = NodeName::new(core::str::from_utf8(name).map_err(|_| "hello: a name that is no text")?)?;
        let volume = if lane == LANE_FORWARD { Some(bytes.array()?) } else { None };
        Ok(Hello { wire_min, wire_max, lane, channel, cluster, node, session, host, name, volume })
    }
}

/// Why a channel is not begun, or ended. Told to the peer, so that both sides show the same reason.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Rejection {
    /// No version that both speak.
    NoCommonVersion,
    /// The hello names another cluster.
    OtherCluster,
    /// The certificate does not name the node that the hello names.
    NotItsCertificate,
    /// No link leads to this node.
    UnknownNode,
    /// Another node than was called.
    NotWhoWasCalled,
    /// Another machine with this node's id is connected and alive: two nodes with one identity.
    TwoOfOneName,
    /// What came was no frame, or none that may come now.
    Malformed,
    /// The node or the link is being stopped.
    Leaving,
    /// The volume is not served here: this node is not its owner, or not yet.
    NotServed,
}

impl Rejection {
    /// Every one, with its number on the wire.
    pub const ALL: [(Rejection, u8); 9] = [
        (Rejection::NoCommonVersion, 1),
        (Rejection::OtherCluster, 2),
        (Rejection::NotItsCertificate, 3),
        (Rejection::UnknownNode, 4),
        (Rejection::NotWhoWasCalled, 5),
        (Rejection::TwoOfOneName, 6),
        (Rejection::Malformed, 7),
        (Rejection::Leaving, 8),
        (Rejection::NotServed, 9),
    ];
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rejection::NoCommonVersion => {
                "no version of the wire protocol that both nodes speak; upgrade one step at a time"
            }
            Rejection::OtherCluster => "the nodes are of different clusters",
            Rejection::NotItsCertificate => "the certificate does not name the node that it was shown for",
            Rejection::UnknownNode => "no link leads to this node",
            Rejection::NotWhoWasCalled => "another node answers at this address than was called",
            Rejection::TwoOfOneName => "two machines use one node's identity; enrol one of them anew",
            Rejection::Malformed => "what came is no frame of this protocol, or none that may come now",
            Rejection::Leaving => "the node or the link is being stopped",
            Rejection::NotServed => "the volume is not served there",
        })
    }
}

/// A frame of the channel itself: everything but messages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ChannelFrame {
    /// Who speaks: the first frame from each side.
    Hello(Hello),
    /// The channel ends, and why.
    Refusal(Rejection),
    /// Messages of the sender below `first` were acknowledged, or will never come.
    Start {
        /// The lowest number that may still come.
        first: u64,
    },
    /// What has arrived.
    Acknowledge {
        /// Every message of the link up to this number.
        received: u64,
        /// Bytes of this channel, from its first on: also of frames that are not yet whole.
        bytes: u64,
    },
    /// Asks for an answer.
    Ping {
        /// The sender's clock, which the answer repeats.
        sent: Instant,
    },
    /// Answers a [`ChannelFrame::Ping`].
    Pong {
        /// As in the ping that it answers.
        sent: Instant,
    },
    /// From here on the connection carries NBD's transmission phase, with extended headers: requests to the owner.
    Entered(Entered),
}

/// What an owner says to a node that forwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entered {
    /// It owns the volume in this term; the connection ends with that (F2).
    pub term: Term,
    /// Size of the volume in bytes.
    pub size_bytes: u64,
    /// Bytes of the largest request that the owner takes.
    pub request_bytes_max: u32,
}

impl ChannelFrame {
    /// Kind that its head names.
    pub fn kind(&self) -> FrameKind {
        match self {
            ChannelFrame::Hello(_) => FrameKind::Hello,
            ChannelFrame::Refusal(_) => FrameKind::Refusal,
            ChannelFrame::Start { .. } => FrameKind::Start,
            ChannelFrame::Acknowledge { .. } => FrameKind::Acknowledge,
            ChannelFrame::Ping { .. } => FrameKind::Ping,
            ChannelFrame::Pong { .. } => FrameKind::Pong,
            ChannelFrame::Entered(_) => FrameKind::Entered,
        }
    }

    /// Appends the frame as it is sent: head and body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + HEAD_BYTES, 0);
        match self {
            ChannelFrame::Hello(hello) => hello.put(out),
            ChannelFrame::Refusal(why) => put_u64(out, u64::from(code(&Rejection::ALL, *why))),
            ChannelFrame::Start { first } => put_u64(out, *first),
            ChannelFrame::Acknowledge { received, bytes } => {
                put_u64(out, *received);
                put_u64(out, *bytes);
            }
            ChannelFrame::Ping { sent } | ChannelFrame::Pong { sent } => put_u64(out, sent.0),
            ChannelFrame::Entered(Entered { term, size_bytes, request_bytes_max }) => {
                put_u64(out, term.0.into());
                put_u64(out, *size_bytes);
                put_u64(out, u64::from(*request_bytes_max));
            }
        }
        let body = &out[start + HEAD_BYTES..];
        let head = FrameHead {
            kind: self.kind(),
            packing: Packing::Plain,
            body_bytes: body.len() as u32,
            payload_bytes: 0,
            unpacked_bytes: 0,
            sequence: 0,
            body_checksum: crc32c(body),
        };
        out[start..start + HEAD_BYTES].copy_from_slice(&head.encode());
    }

    /// From a body whose head said `kind`, and whose checksum was found right.
    pub fn decode(kind: FrameKind, body: &[u8]) -> Result<ChannelFrame, Reason> {
        let mut bytes = Bytes { rest: body };
        let frame = match kind {
            // Longer in a later version; what is behind the known fields is none of ours.
            FrameKind::Hello => return Hello::take(&mut bytes).map(ChannelFrame::Hello),
            FrameKind::Refusal => {
                let number = u8::try_from(bytes.u64()?).ok();
                let why = number.and_then(|number| of_code(&Rejection::ALL, number));
                ChannelFrame::Refusal(why.ok_or("refusal: unknown reason")?)
            }
            FrameKind::Start => ChannelFrame::Start { first: bytes.u64()? },
            FrameKind::Acknowledge => ChannelFrame::Acknowledge { received: bytes.u64()?, bytes: bytes.u64()? },
            FrameKind::Ping => ChannelFrame::Ping { sent: Instant(bytes.u64()?) },
            FrameKind::Pong => ChannelFrame::Pong { sent: Instant(bytes.u64()?) },
            FrameKind::Entered => {
                let (term, size_bytes, largest) = (bytes.u64()?, bytes.u64()?, bytes.u64()?);
                let term = Term(u32::try_from(term).map_err(|_| "entered: no term")?);
                let request_bytes_max = u32::try_from(largest).map_err(|_| "entered: no size of requests")?;
                ChannelFrame::Entered(Entered { term, size_bytes, request_bytes_max })
            }
            FrameKind::Message => return Err("frame: a message is no frame of the channel itself"),
        };
        bytes.end(frame)
    }
}

// --- numbers ---

fn put_u16(out: &mut Vec<u8>, number: u16) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn put_u32(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn put_u64(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn put_host(out: &mut Vec<u8>, host: &Host) {
    out.extend_from_slice(&host.machine);
    out.extend_from_slice(&host.boot);
}

/// Bytes not yet looked at.
struct Bytes<'a> {
    rest: &'a [u8],
}

impl<'a> Bytes<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], Reason> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or("frame: its body ends too early")?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Reason> {
        Ok(self.take(N)?.try_into().expect("as many as were taken"))
    }

    fn u8(&mut self) -> Result<u8, Reason> {
        Ok(self.array::<1>()?[0])
    }

    fn u16(&mut self) -> Result<u16, Reason> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, Reason> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Reason> {
        self.array().map(u64::from_le_bytes)
    }

    fn host(&mut self) -> Result<Host, Reason> {
        Ok(Host { machine: self.array()?, boot: self.array()? })
    }

    /// Nothing may be left.
    fn end<T>(self, value: T) -> Result<T, Reason> {
        if self.rest.is_empty() { Ok(value) } else { Err("frame: its body is too long") }
    }
}

#[cfg(test)]
mod tests;
