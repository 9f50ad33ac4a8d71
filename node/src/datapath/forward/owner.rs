//! The connection to the owner of a volume: NBD's transmission phase with extended headers, as a client speaks it.
//!
//! Requests leave in the order of the volume's queue, each whole before the next begins. Whatever the owner says that is no
//! answer to what it was asked ends the connection, and what it has not answered is asked again by the next one.

use super::volume::Forwarded;
use forebay_core::api::RequestError;
use forebay_core::types::RequestId;
use forebay_front::nbd::proto::{ChunkHead, ChunkKind, EXTENDED_CHUNK_BYTES, ErrorCode, decode_extended_chunk};
use forebay_io::Interest;
use forebay_io::channel::Channel;
use forebay_io::link::Identity;
use forebay_io::socket::{Moved, vector};
use std::os::fd::{AsRawFd, RawFd};

/// Bytes that wait for the socket; requests beyond that wait in the volume's queue.
const OUT_BYTES_MAX: usize = 512 << 10;
/// Bytes of the buffer through which answers come: it stays in the CPU's second-level cache.
pub(super) const HOT_BYTES: usize = 256 << 10;
/// Receive calls in one round.
const ROUNDS_MAX: usize = 8;

/// What the next bytes of the owner are.
enum Incoming {
    Head,
    /// The payload of a chunk, of which so much is done with.
    Data {
        head: ChunkHead,
        at: u64,
        done: u64,
    },
    /// The rest of an error's text.
    Text {
        head: ChunkHead,
        left: u64,
    },
}

/// See the module's text.
pub(super) struct Owner {
    channel: Channel,
    out: Vec<u8>,
    out_at: usize,
    /// A write whose bytes go out, and how many have.
    sending: Option<(RequestId, u64)>,
    incoming: Incoming,
    /// The start of what is not whole.
    kept: Vec<u8>,
    pub(super) interest: Interest,
    /// More may have come than the socket tells.
    pub(super) has_more: bool,
}

impl Owner {
    pub(super) fn new(channel: Channel) -> Owner {
        Owner {
            channel,
            out: Vec::with_capacity(OUT_BYTES_MAX + 4096),
            out_at: 0,
            sending: None,
            incoming: Incoming::Head,
            kept: Vec::new(),
            interest: Interest::READ,
            // A session may have decrypted bytes behind the owner's first word.
            has_more: true,
        }
    }

    pub(super) fn descriptor(&self) -> RawFd {
        self.channel.socket().as_raw_fd()
    }

    /// Whether the identity that it has shown was revoked since.
    pub(super) fn is_refused_by(&self, identity: &Identity) -> bool {
        identity.refuses(&self.channel)
    }

    pub(super) fn shut_down(&mut self) {
        self.channel.shut_down();
    }

    /// What it waits for.
    pub(super) fn wanted_interest(&self) -> Interest {
        let unsent = self.out_at < self.out.len() || self.channel.has_unsent();
        Interest { read: true, write: unsent }
    }

    // --- to the owner ---

    /// Sends what there is, as far as the socket takes it. `Err`: why the connection has ended.
    pub(super) fn send(&mut self, volume: &mut Forwarded) -> Result<(), String> {
        loop {
            self.fill(volume);
            let rest = &self.out[self.out_at..];
            if rest.is_empty() && !self.channel.has_unsent() {
                return Ok(());
            }
            let vectors = [vector(rest.as_ptr(), rest.len())];
            // SAFETY: the vector names `out`, which nothing changes during the call.
            match unsafe { self.channel.send(if rest.is_empty() { &[] } else { &vectors }) } {
                Moved::Bytes(sent) if sent < rest.len() || rest.is_empty() => {
                    self.out_at += sent;
                    return Ok(());
                }
                Moved::Bytes(sent) => self.out_at += sent,
                Moved::WouldBlock => return Ok(()),
                Moved::Failed(error) => return Err(format!("sending failed: {error}")),
            }
        }
    }

    fn fill(&mut self, volume: &mut Forwarded) {
        if self.out_at == self.out.len() {
            (self.out_at, self.out) = (0, std::mem::take(&mut self.out));
            self.out.clear();
        }
        while self.out.len() < OUT_BYTES_MAX {
            let Some((id, at)) = self.sending else {
                let Some(id) = volume.next_to_send() else { return };
                let (head, payload) = volume.head_of(id);
                self.out.extend_from_slice(&head.encode_extended());
                self.sending = (payload > 0).then_some((id, 0));
                continue;
            };
            let part = volume.payload_from(id, at);
            self.out.extend_from_slice(part);
            let at = at + part.len() as u64;
            self.sending = (at < volume.head_of(id).1).then_some((id, at));
        }
    }

    // --- from the owner ---

    /// Takes in what has come. `Err`: why the connection has ended.
    pub(super) fn receive(&mut self, volume: &mut Forwarded, hot: &mut [u8]) -> Result<(), String> {
        self.has_more = false;
        for _ in 0..ROUNDS_MAX {
            let prefix = self.kept.len();
            hot[..prefix].copy_from_slice(&self.kept);
            self.kept.clear();
            let got = match self.channel.receive(&mut hot[prefix..]) {
                Moved::Bytes(0) => return Err("it has closed the connection".to_owned()),
                Moved::Bytes(got) => got,
                Moved::WouldBlock => {
                    self.kept.extend_from_slice(&hot[..prefix]);
                    return Ok(());
                }
                Moved::Failed(error) => return Err(format!("receiving failed: {error}")),
            };
            let bytes = &hot[..prefix + got];
            let used = self.parse(volume, bytes)?;
            self.kept.extend_from_slice(&bytes[used..]);
        }
        self.has_more = true;
        Ok(())
    }

    /// Returns how many bytes are done with; the rest is the start of a head, or of the first words of a chunk.
    fn parse(&mut self, volume: &mut Forwarded, bytes: &[u8]) -> Result<usize, String> {
        let mut at = 0;
        loop {
            let rest = &bytes[at..];
            match &mut self.incoming {
                Incoming::Head => {
                    let Some(head) = rest.first_chunk::<EXTENDED_CHUNK_BYTES>() else { return Ok(at) };
                    let head = decode_extended_chunk(head).ok_or("it answers with a wrong magic")?;
                    let Some(used) = self.on_head(volume, head, &rest[EXTENDED_CHUNK_BYTES..])? else { return Ok(at) };
                    at += EXTENDED_CHUNK_BYTES + used;
                }
                Incoming::Data { head, at: place, done } => {
                    let part = (head.length - 8 - *done).min(rest.len() as u64);
                    if !volume.put_answer(RequestId(head.cookie), *place, Ok(&rest[..part as usize])) {
                        return Err("it answers a read with bytes that nobody asked for".to_owned());
                    }
                    (*done, *place, at) = (*done + part, *place + part, at + part as usize);
                    if *done < head.length - 8 {
                        return Ok(at);
                    }
                    let head = *head;
                    self.chunk_ends(volume, head)?;
                }
                Incoming::Text { head, left } => {
                    let part = (*left).min(rest.len() as u64);
                    (*left, at) = (*left - part, at + part as usize);
                    if *left > 0 {
                        return Ok(at);
                    }
                    let head = *head;
                    self.chunk_ends(volume, head)?;
                }
            }
        }
    }

    /// A chunk begins; `rest` is what has come behind its head. None: its first words are not all here.
    fn on_head(&mut self, volume: &mut Forwarded, head: ChunkHead, rest: &[u8]) -> Result<Option<usize>, String> {
        let id = RequestId(head.cookie);
        let asked = volume.get_mut(id).filter(|asked| asked.sent);
        let asked = asked.ok_or("it answers what it was not asked")?;
        let word = |at: usize| rest.get(at..at + 8).map(|b| u64::from_be_bytes(b.try_into().expect("eight bytes")));
        match head.kind {
            Some(ChunkKind::None) if head.length == 0 => {
                self.chunk_ends(volume, head)?;
                Ok(Some(0))
            }
            Some(ChunkKind::OffsetData) if head.length > 8 => {
                let Some(place) = word(0) else { return Ok(None) };
                self.incoming = Incoming::Data { head, at: place, done: 0 };
                Ok(Some(8))
            }
            Some(ChunkKind::OffsetHole) if head.length == 12 => {
                let (Some(place), Some(length)) = (word(0), rest.get(8..12)) else { return Ok(None) };
                let zeros = u32::from_be_bytes(length.try_into().expect("four bytes"));
                if !volume.put_answer(id, place, Err(zeros.into())) {
                    return Err("it answers a read with a hole that nobody asked for".to_owned());
                }
                self.chunk_ends(volume, head)?;
                Ok(Some(12))
            }
            Some(ChunkKind::Error) if head.length >= 6 => {
                let Some(code) = rest.get(..4) else { return Ok(None) };
                let code = u32::from_be_bytes(code.try_into().expect("four bytes"));
                // It is being stopped: the next owner answers.
                asked.error = Some(error_of(code).ok_or("it is being stopped")?);
                self.incoming = Incoming::Text { head, left: head.length - 4 };
                Ok(Some(4))
            }
            Some(
                ChunkKind::None
                | ChunkKind::OffsetData
                | ChunkKind::OffsetHole
                | ChunkKind::BlockStatus
                | ChunkKind::BlockStatusExt
                | ChunkKind::Error,
            )
            | None => Err("it answers with a chunk of a kind or length that may not come".to_owned()),
        }
    }

    fn chunk_ends(&mut self, volume: &mut Forwarded, head: ChunkHead) -> Result<(), String> {
        self.incoming = Incoming::Head;
        let id = RequestId(head.cookie);
        if !head.done {
            return Ok(());
        }
        // Its memory is given back with the answer, and the rest of it would have to come from there.
        if self.sending.is_some_and(|(sending, _)| sending == id) {
            return Err("it answers a write before it has all of it".to_owned());
        }
        if volume.answered(id) { Ok(()) } else { Err("it answers a read with less than was asked for".to_owned()) }
    }
}

/// None: not an answer to the request, but the end of who was asked.
fn error_of(code: u32) -> Option<RequestError> {
    const SHUTDOWN: u32 = ErrorCode::Shutdown as u32;
    const NO_SPACE: u32 = ErrorCode::NoSpace as u32;
    const INVALID: u32 = ErrorCode::Invalid as u32;
    const PERM: u32 = ErrorCode::Perm as u32;
    match code {
        SHUTDOWN => None,
        NO_SPACE => Some(RequestError::NoSpace),
        INVALID | PERM => Some(RequestError::Invalid),
        // Whatever else it is, the client is told that it failed.
        _ => Some(RequestError::Io),
    }
}
