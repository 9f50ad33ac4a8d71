//! The physical limit: an NBD server that does only what no server can leave out.
//!
//! One thread, one connection. Payloads land in an arena that is used cyclically and too large for any cache (by
//! scatter receive or by one copy, see [`Receipt`]), each gets its CRC-32C, all answers of a batch leave by one call,
//! reads are sent straight from the arena. There is no volume: what is read is whatever lies there. Its CPU per operation is the yardstick for the
//! real server, and what is lost against it is the cost of being correct.

use super::greeter::Greeter;
use super::handshake::ExportInfo;
use super::proto::*;
use crate::memory::Arena;
use forebay_core::format::crc32c;
use forebay_core::types::{BLOCK_BYTES, Instant};
use forebay_io::socket::{self, Moved, VECTORS_MAX, vector};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

const BLOCK: usize = BLOCK_BYTES as usize;
/// Requests received by one call.
const BATCH: usize = 64;
const _: () = assert!(2 * BATCH <= VECTORS_MAX);

/// How a 4 KiB payload reaches the arena. The limit is the cheaper of the two on the machine at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receipt {
    /// By the kernel, straight to its place: guessed to be like the last request.
    Scatter,
    /// By the kernel into a buffer that stays in the cache, from there by one copy.
    Copy,
}

/// What a session cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct LimitReport {
    /// Requests that were answered.
    pub operations: u64,
    /// Bytes of reads and writes together.
    pub bytes: u64,
    /// CPU of the serving thread, user and system.
    pub cpu_seconds: f64,
    /// Receive calls that brought something; `operations` by this is the size of a batch.
    pub batches: u64,
    /// All payload checksums together, so that none of them can be optimised away.
    pub checksum: u32,
}

struct Limit {
    socket: OwnedFd,
    arena: Arena,
    frames: usize,
    /// Frame for the next payload.
    cursor: usize,
    size_bytes: u64,
    structured: bool,
    receipt: Receipt,
    report: LimitReport,
    heads: Vec<u8>,
    /// What to send: a stretch of `heads`, or of the arena.
    answers: Vec<(bool, usize, usize)>,
    done: bool,
}

/// Serves one client on a non-blocking socket until it leaves. `arena_bytes` should be 2 GiB or more; reads longer
/// than 1 MiB and commands other than read, write and flush are refused.
pub fn serve(socket: OwnedFd, size_bytes: u64, arena_bytes: usize, receipt: Receipt) -> io::Result<LimitReport> {
    let frames = (arena_bytes / BLOCK).max(BATCH + 256);
    let arena = Arena::new(frames)?;
    let description = String::from("no volume, only the cost of the protocol");
    let export =
        ExportInfo { name: "limit".into(), size_bytes, description, read_only: false, request_bytes_max: 1 << 20 };
    let (channel, negotiated) = Greeter::new(socket, None, Instant(0)).finish(&export)?;
    if negotiated.framing == Framing::Extended {
        return Err(io::Error::other("the limit server has no extended headers: its clients do without"));
    }
    let socket = channel.into_plain_socket();
    let (structured, report) = (negotiated.framing == Framing::Structured, LimitReport::default());
    let (heads, answers) = (Vec::with_capacity(64 << 10), Vec::with_capacity(VECTORS_MAX));
    let (cursor, done) = (0, false);
    let mut limit =
        Limit { socket, arena, frames, cursor, size_bytes, structured, receipt, report, heads, answers, done };
    let cpu = socket::thread_cpu_seconds();
    limit.run(&negotiated.leftover)?;
    limit.report.cpu_seconds = socket::thread_cpu_seconds() - cpu;
    Ok(limit.report)
}

impl Limit {
    fn run(&mut self, early: &[u8]) -> io::Result<()> {
        let mut heads = vec![[0u8; REQUEST_BYTES]; BATCH];
        // Bytes in a row, where the guess was wrong or there was none; its start may be an incomplete head.
        let mut row: Vec<u8> = early.to_vec();
        let mut guess = false;
        self.parse(&mut row, &mut guess)?;
        self.send()?;
        while !self.done {
            let mut vectors = Vec::with_capacity(2 * BATCH);
            self.cursor = if self.cursor + BATCH > self.frames { 0 } else { self.cursor };
            let prefix = row.len();
            row.reserve(BATCH * (REQUEST_BYTES + BLOCK));
            if guess {
                heads[0][..prefix].copy_from_slice(&row);
                for (index, head) in heads.iter_mut().enumerate() {
                    let head = if index == 0 { &mut head[prefix..] } else { &mut head[..] };
                    vectors.push(libc::iovec { iov_base: head.as_mut_ptr().cast(), iov_len: head.len() });
                    vectors.push(vector(self.arena.frame(self.cursor + index).as_ptr(), BLOCK));
                }
            } else {
                let spare = row.spare_capacity_mut();
                vectors.push(libc::iovec { iov_base: spare.as_mut_ptr().cast(), iov_len: spare.len() });
            }
            // SAFETY: the vectors name heads and spare capacity, borrowed here, and frames of our arena that no answer
            // uses: answers have left before the next receipt.
            let got = match unsafe { socket::receive_vectors(self.socket.as_fd(), &mut vectors) } {
                Moved::Bytes(0) => break,
                Moved::Bytes(got) => got,
                Moved::WouldBlock => {
                    socket::wait(self.socket.as_fd(), false)?;
                    continue;
                }
                Moved::Failed(error) => return Err(error),
            };
            self.report.batches += 1;
            if guess {
                let taken = self.take_guessed(&heads, prefix + got);
                self.line_up(&heads, taken, prefix + got, &mut row);
                self.cursor += taken;
            } else {
                // SAFETY: the kernel has written `got` bytes behind the current end.
                unsafe { row.set_len(prefix + got) };
            }
            self.parse(&mut row, &mut guess)?;
            self.send()?;
        }
        Ok(())
    }

    /// Takes the requests that were guessed right and are whole; returns how many.
    fn take_guessed(&mut self, heads: &[[u8; REQUEST_BYTES]], received: usize) -> usize {
        let whole = received / (REQUEST_BYTES + BLOCK);
        for (index, head) in heads[..whole].iter().enumerate() {
            match RequestHead::decode(head) {
                Some(RequestHead { command: Command::Write, length, cookie, .. }) if length as usize == BLOCK => {
                    self.on_payload(self.cursor + index, BLOCK, cookie);
                }
                Some(_) | None => return index,
            }
        }
        whole
    }

    /// Puts what was not taken in a row.
    fn line_up(&self, heads: &[[u8; REQUEST_BYTES]], taken: usize, received: usize, row: &mut Vec<u8>) {
        row.clear();
        let mut left = received - taken * (REQUEST_BYTES + BLOCK);
        for (index, head) in heads.iter().enumerate().skip(taken) {
            let part = left.min(REQUEST_BYTES);
            row.extend_from_slice(&head[..part]);
            left -= part;
            let part = left.min(BLOCK);
            row.extend_from_slice(self.bytes(self.cursor + index, part));
            left -= part;
        }
    }

    fn bytes(&self, frame: usize, length: usize) -> &[u8] {
        assert!(frame * BLOCK + length <= self.frames * BLOCK);
        // SAFETY: within the arena, as asserted; the kernel writes to it only in calls made while `self` is not lent.
        unsafe { core::slice::from_raw_parts(self.arena.frame(frame).as_ptr(), length) }
    }

    fn on_payload(&mut self, frame: usize, length: usize, cookie: u64) {
        self.report.checksum ^= crc32c(self.bytes(frame, length));
        self.report.bytes += length as u64;
        self.answer(0, cookie);
    }

    fn answer(&mut self, error: u32, cookie: u64) {
        self.queue_head(&simple_reply(error, cookie));
    }

    fn answer_read(&mut self, head: &RequestHead) {
        if self.structured {
            let chunk = chunk(ChunkKind::OffsetData, true, head.cookie, 8 + head.length as u32);
            self.queue_head(&[&chunk[..], &head.offset.to_be_bytes()].concat());
        } else {
            self.queue_head(&simple_reply(0, head.cookie));
        }
    }

    fn queue_head(&mut self, head: &[u8]) {
        self.report.operations += 1;
        let start = self.heads.len();
        self.heads.extend_from_slice(head);
        match self.answers.last_mut() {
            Some((false, from, length)) if *from + *length == start => *length += head.len(),
            Some(_) | None => self.answers.push((false, start, head.len())),
        }
    }

    /// Takes the whole requests of a row, and the rest of a payload from the socket; leaves an incomplete head.
    fn parse(&mut self, row: &mut Vec<u8>, guess: &mut bool) -> io::Result<()> {
        let mut at = 0;
        while let Some(head) = row[at..].first_chunk() {
            let Some(head) = RequestHead::decode(head) else { return Err(io::Error::other("wrong request magic")) };
            at += REQUEST_BYTES;
            let length = head.length as usize;
            let fits = length <= 256 * BLOCK
                && head.offset.checked_add(length as u64).is_some_and(|end| end <= self.size_bytes);
            match head.command {
                Command::Write if fits => {
                    *guess = length == BLOCK && self.receipt == Receipt::Scatter;
                    let here = length.min(row.len() - at);
                    self.cursor = if self.cursor + 256 > self.frames { 0 } else { self.cursor };
                    self.fill(&row[at..at + here], length)?;
                    at += here;
                    self.on_payload(self.cursor, length, head.cookie);
                    self.cursor += length.div_ceil(BLOCK);
                }
                Command::Read if fits => {
                    *guess = false;
                    self.cursor = if self.cursor + 256 > self.frames { 0 } else { self.cursor };
                    self.answer_read(&head);
                    self.answers.push((true, self.cursor, length));
                    self.cursor += length.div_ceil(BLOCK);
                    self.report.bytes += length as u64;
                }
                Command::Flush => self.answer(0, head.cookie),
                Command::Disconnect => self.done = true,
                Command::Write => return Err(io::Error::other("a write longer than 1 MiB or past the end")),
                Command::Read
                | Command::Trim
                | Command::Cache
                | Command::WriteZeroes
                | Command::BlockStatus
                | Command::Unknown(_) => self.answer(ErrorCode::Invalid as u32, head.cookie),
            }
            if self.answers.len() > VECTORS_MAX / 2 {
                self.send()?;
            }
        }
        row.drain(..at);
        Ok(())
    }

    /// Fills the frames at the cursor with `start` and what follows it in the socket.
    fn fill(&mut self, start: &[u8], length: usize) -> io::Result<()> {
        let frames = self.arena.frame(self.cursor);
        // SAFETY: the caller has made room for 256 frames at the cursor, and `length` is at most that.
        unsafe { frames.as_ptr().copy_from_nonoverlapping(start.as_ptr(), start.len()) };
        let mut filled = start.len();
        while filled < length {
            // SAFETY: as above, `filled` is less than `length`.
            let rest = unsafe { frames.add(filled) };
            let vectors = &mut [vector(rest.as_ptr(), length - filled)];
            // SAFETY: the vector lies within our arena, in frames that no answer uses.
            match unsafe { socket::receive_vectors(self.socket.as_fd(), vectors) } {
                Moved::Bytes(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Moved::Bytes(got) => filled += got,
                Moved::WouldBlock => socket::wait(self.socket.as_fd(), false)?,
                Moved::Failed(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends all answers.
    fn send(&mut self) -> io::Result<()> {
        let mut sent = 0;
        while !self.answers.is_empty() {
            let mut vectors: Vec<libc::iovec> = self
                .answers
                .iter()
                .map(|&(data, from, length)| {
                    let start =
                        if data { self.arena.frame(from).as_ptr().cast_const() } else { self.heads[from..].as_ptr() };
                    vector(start, length)
                })
                .collect();
            // What an earlier call has sent of the first one.
            vectors[0].iov_base = vectors[0].iov_base.wrapping_byte_add(sent);
            vectors[0].iov_len -= sent;
            // SAFETY: the vectors name our heads and our arena, and nothing writes to either during the call.
            match unsafe { socket::send(self.socket.as_fd(), &vectors) } {
                Moved::Bytes(mut bytes) => {
                    bytes += sent;
                    let whole = self.answers.iter().take_while(|(_, _, length)| {
                        let fits = bytes >= *length;
                        bytes -= if fits { *length } else { 0 };
                        fits
                    });
                    let whole = whole.count();
                    self.answers.drain(..whole);
                    sent = bytes;
                }
                Moved::WouldBlock => socket::wait(self.socket.as_fd(), true)?,
                Moved::Failed(error) => return Err(error),
            }
        }
        self.heads.clear();
        Ok(())
    }
}
