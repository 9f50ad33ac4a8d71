//! A connection over a socket pair before a volume in memory: what each request is answered, where the bytes end up,
//! and that no frame is lost, however the bytes arrive and whatever the client does.

use super::super::handshake::ExportInfo;
use super::*;
use crate::memory::MemoryVolume;
use core::ptr::NonNull;
use forebay_core::volume::Extent;
use proptest::prelude::*;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

mod extended;
mod leaving;
mod moved;

const SIZE: u64 = 1 << 20;
const SPARE: usize = 300;

/// A volume in memory that can be told to hold back.
struct Volume {
    memory: MemoryVolume,
    refuses_frames: bool,
    inadmissible: Option<RequestError>,
    answers_sent: usize,
    frames_at_start: usize,
}

// SAFETY: everything that the contract is about is passed on to `MemoryVolume`.
unsafe impl Backend for Volume {
    fn size_bytes(&self) -> u64 {
        self.memory.size_bytes()
    }
    fn admissible(&self, request: &Request) -> Result<(), RequestError> {
        self.inadmissible.map_or_else(|| self.memory.admissible(request), Err)
    }
    fn take_frames(&mut self, client: ClientId, held: u32, count: u32, into: &mut Frames) -> bool {
        !self.refuses_frames && self.memory.take_frames(client, held, count, into)
    }
    fn withdraw(&mut self, client: ClientId) {
        self.memory.withdraw(client);
    }
    fn hold(&mut self, held: u32, count: u32) -> bool {
        self.memory.hold(held, count)
    }
    fn let_go(&mut self, count: u32) {
        self.memory.let_go(count);
    }
    fn return_frames(&mut self, frames: &[FrameId]) {
        self.memory.return_frames(frames);
    }
    fn frame(&self, frame: FrameId) -> NonNull<u8> {
        self.memory.frame(frame)
    }
    fn checksum(&self, block: BlockIndex, mask: SectorMask, bytes: &[u8]) -> u32 {
        self.memory.checksum(block, mask, bytes)
    }
    fn submit(&mut self, id: RequestId, request: Request) {
        self.memory.submit(id, request);
    }
    fn sent(&mut self, pieces: Pieces) {
        self.answers_sent += 1;
        self.memory.sent(pieces);
    }
    fn hangup(&mut self, ids: Vec<RequestId>) {
        self.memory.hangup(ids);
    }
    fn take_back(&mut self, ids: &[RequestId]) -> Vec<(RequestId, Request)> {
        self.memory.take_back(ids)
    }
    fn extents(&self, offset: u64, length: u64, max: usize) -> Vec<Extent> {
        self.memory.extents(offset, length, max)
    }
}

struct Pair {
    client: Option<UnixStream>,
    connection: Connection,
    volume: Volume,
    scratch: Scratch,
    now: Instant,
    /// Answers stay here.
    holds_answers: bool,
    answers: Vec<(RequestId, Result<Pieces, RequestError>)>,
    client_reads: bool,
    received: Vec<u8>,
}

#[derive(Clone, Copy, Default)]
struct Session {
    framing: Framing,
    read_only: bool,
    contexts: bool,
}

fn pair(session: Session) -> Pair {
    let (client, server) = UnixStream::pair().unwrap();
    client.set_nonblocking(true).unwrap();
    server.set_nonblocking(true).unwrap();
    let mut contexts = ContextSet::default();
    if session.contexts {
        Context::ALL.into_iter().for_each(|context| contexts.insert(context));
    }
    let export = ExportInfo {
        name: "vm1".into(),
        size_bytes: SIZE,
        description: String::new(),
        read_only: session.read_only,
        request_bytes_max: REQUEST_BYTES_MAX as u32,
    };
    let negotiated =
        Negotiated { client: Client::Local, export, framing: session.framing, contexts, leftover: Vec::new() };
    let mut memory = MemoryVolume::new(SIZE, SPARE).unwrap();
    memory.check_payloads();
    let frames_at_start = memory.frames_free();
    Pair {
        client: Some(client),
        connection: Connection::new(Channel::plain(server.into()), 7, negotiated, Instant(0)),
        volume: Volume { memory, refuses_frames: false, inadmissible: None, answers_sent: 0, frames_at_start },
        scratch: Scratch::default(),
        now: Instant(0),
        holds_answers: false,
        answers: Vec::new(),
        client_reads: true,
        received: Vec::new(),
    }
}

impl Pair {
    /// One round of a shard.
    fn turn(&mut self) {
        self.connection.receive(&mut self.volume, &mut self.scratch, self.now);
        self.volume.memory.take_answers(&mut self.answers);
        if !self.holds_answers {
            self.answer();
        }
        self.connection.flush_replies(&mut self.volume, &mut self.scratch, self.now);
        self.listen();
    }

    fn answer(&mut self) {
        for (id, result) in self.answers.drain(..) {
            self.connection.reply(&mut self.volume, id, result);
        }
    }

    fn listen(&mut self) {
        let Some(client) = self.client.as_mut().filter(|_| self.client_reads) else { return };
        let mut buffer = vec![0; 1 << 16];
        loop {
            match client.read(&mut buffer) {
                Ok(0) => return,
                Ok(n) => self.received.extend_from_slice(&buffer[..n]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Sends as much as the socket takes, turning in between; returns what it did not take when nothing moves any more.
    fn pump<'a>(&mut self, mut bytes: &'a [u8]) -> &'a [u8] {
        let mut still = 0;
        while still < 40 {
            let client = self.client.as_mut().expect("the client is there");
            match client.write(bytes) {
                Ok(n) if n > 0 => {
                    bytes = &bytes[n..];
                    still = 0;
                }
                Ok(_) => still += 1,
                Err(error) if error.kind() == ErrorKind::WouldBlock => still += 1,
                Err(error) if error.kind() == ErrorKind::BrokenPipe => return bytes,
                Err(error) => panic!("{error}"),
            }
            self.turn();
        }
        bytes
    }

    fn take_received(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.received)
    }

    /// Everything that is not the volume's content must have come back.
    fn assert_no_frame_lost(&self) {
        let memory = &self.volume.memory;
        assert_eq!(memory.frames_free() + memory.frames_of_content(), self.volume.frames_at_start);
    }

    fn content(&mut self) -> Vec<u8> {
        self.take_received();
        assert!(self.pump(&request(Command::Read, 0, 999, 0, SIZE as u32)).is_empty());
        let answer = self.take_received();
        assert_eq!(answer[..16], simple_reply(0, 999));
        answer[16..].to_vec()
    }
}

fn request(command: Command, flags: u16, cookie: u64, offset: u64, length: u32) -> Vec<u8> {
    RequestHead { flags, command, cookie, offset, length: length.into() }.encode().to_vec()
}

fn write(cookie: u64, offset: u64, payload: &[u8]) -> Vec<u8> {
    [request(Command::Write, 0, cookie, offset, payload.len() as u32), payload.to_vec()].concat()
}

/// Bytes that tell their origin.
fn pattern(seed: u64, length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| (seed.wrapping_mul(31) + at * 7 + (at >> 8)) as u8 | 1).collect()
}

fn usable(pair: &mut Pair) {
    pair.take_received();
    assert!(pair.pump(&request(Command::Flush, 0, 77, 0, 0)).is_empty());
    assert_eq!(pair.take_received(), simple_reply(0, 77), "the connection stays usable");
}

#[test]
fn what_is_written_is_read() {
    let mut pair = pair(Session::default());
    for (cookie, (offset, length)) in
        [(0, 4096), (4096, 512), (5000, 1), (8191, 2), (100, 9000), (SIZE - 1, 1), (SIZE - 300_000, 300_000)]
            .into_iter()
            .enumerate()
    {
        let payload = pattern(cookie as u64, length);
        let bytes = [write(cookie as u64, offset, &payload), request(Command::Read, 0, 50, offset, length as u32)];
        assert!(pair.pump(&bytes.concat()).is_empty());
        let expected = [&simple_reply(0, cookie as u64)[..], &simple_reply(0, 50), &payload].concat();
        assert_eq!(pair.take_received(), expected, "{length} bytes at {offset}");
    }
    pair.assert_no_frame_lost();
}

#[test]
fn bytes_may_arrive_one_at_a_time() {
    let mut pair = pair(Session::default());
    let payload = pattern(1, 5000);
    let bytes = [
        write(1, 4000, &payload),
        request(Command::Flush, command_flags::FUA, 2, 0, 0),
        request(Command::Read, 0, 3, 3999, 5002),
        request(Command::Trim, 0, 4, 4096, 4096),
        request(Command::WriteZeroes, command_flags::NO_HOLE | command_flags::FAST_ZERO, 5, 8192, 10),
        request(Command::Cache, 0, 6, 0, 4096),
        request(Command::Read, 0, 7, 3999, 5002),
    ]
    .concat();
    for byte in &bytes {
        assert!(pair.pump(&[*byte]).is_empty());
    }
    let first = [&[0][..], &payload, &[0]].concat();
    let mut second = first.clone();
    second[97..4203].fill(0);
    let expected = [
        &simple_reply(0, 1)[..],
        &simple_reply(0, 2),
        &simple_reply(0, 3),
        &first,
        &simple_reply(0, 4),
        &simple_reply(0, 5),
        &simple_reply(0, 6),
        &simple_reply(0, 7),
        &second,
    ]
    .concat();
    assert!(pair.take_received() == expected);
    pair.assert_no_frame_lost();
}

#[test]
fn large_writes_in_a_row_and_small_ones_between_them_end_up_in_place() {
    let writes: Vec<(u64, usize)> =
        vec![(0, 70_000), (131_072, 131_072), (300_000, 65_536), (5, 3), (4096, 4096), (400_000, 100_001), (70_001, 1)];
    let mut bytes = Vec::new();
    let mut model = vec![0; SIZE as usize];
    let mut expected = Vec::new();
    for (cookie, &(offset, length)) in writes.iter().enumerate() {
        let payload = pattern(cookie as u64, length);
        model[offset as usize..][..length].copy_from_slice(&payload);
        bytes.extend(write(cookie as u64, offset, &payload));
        expected.extend(simple_reply(0, cookie as u64));
    }
    for cut in [1 << 20, 200_000, 65_536 + 28, 4099] {
        let mut pair = pair(Session::default());
        for part in bytes.chunks(cut) {
            assert!(pair.pump(part).is_empty());
        }
        assert!(pair.take_received() == expected, "cut every {cut} bytes");
        assert!(pair.content() == model, "cut every {cut} bytes");
        pair.assert_no_frame_lost();
    }
}

#[test]
fn every_wrong_request_has_its_answer_and_harms_nothing() {
    use ErrorCode::*;
    let table: &[(Command, u16, u64, u32, ErrorCode)] = &[
        (Command::Read, 0, SIZE - 512, 4096, Invalid),
        (Command::Read, 0, (1 << 63) - 512, 512, Invalid),
        (Command::Read, 0, u64::MAX, 1, Invalid),
        (Command::Read, 0, 0, 0, Invalid),
        (Command::Read, 0, 0, (32 << 20) + 1, Invalid),
        (Command::Read, 0, 0, u32::MAX, Invalid),
        (Command::Read, 1 << 15, 0, 512, Invalid),
        (Command::Read, command_flags::NO_HOLE, 0, 512, Invalid),
        (Command::Read, command_flags::DF, 0, 512, Invalid),
        (Command::Write, 0, SIZE - 512, 4096, NoSpace),
        (Command::Write, 0, u64::MAX - 5, 100, NoSpace),
        (Command::Write, 0, 0, 0, Invalid),
        (Command::Write, 1 << 15, 0, 512, Invalid),
        (Command::Write, command_flags::PAYLOAD_LEN, 0, 512, Invalid),
        (Command::Trim, 0, SIZE, 4096, Invalid),
        (Command::Trim, 0, 0, 0, Invalid),
        (Command::Trim, command_flags::NO_HOLE, 0, 512, Invalid),
        (Command::WriteZeroes, 0, SIZE - 1, 2, NoSpace),
        (Command::WriteZeroes, 0, 0, 0, Invalid),
        (Command::WriteZeroes, command_flags::DF, 0, 512, Invalid),
        (Command::Flush, 0, 1, 0, Invalid),
        (Command::Flush, 0, 0, 1, Invalid),
        (Command::Flush, command_flags::DF, 0, 0, Invalid),
        (Command::Cache, 0, SIZE, 1, Invalid),
        (Command::Cache, 0, 0, 0, Invalid),
        (Command::BlockStatus, 0, 0, 512, Invalid),
        (Command::Unknown(8), 0, 0, 512, Invalid),
        (Command::Unknown(65535), 0, 0, 512, Invalid),
    ];
    let mut pair = pair(Session::default());
    for &(command, flags, offset, length, error) in table {
        let mut bytes = request(command, flags, 5, offset, length);
        if command == Command::Write {
            bytes.extend(pattern(1, length as usize));
        }
        assert!(pair.pump(&bytes).is_empty());
        assert_eq!(pair.take_received(), simple_reply(error as u32, 5), "{command:?} {flags:x} {offset} {length}");
        usable(&mut pair);
    }
    assert!(pair.content().iter().all(|&byte| byte == 0), "nothing of it was executed");
    pair.assert_no_frame_lost();
}

#[test]
fn a_write_that_is_too_long_is_skipped_and_one_that_is_absurd_is_closed() {
    let mut pair = pair(Session::default());
    let length = 33 << 20;
    assert!(pair.pump(&request(Command::Write, 0, 5, 0, length)).is_empty());
    let part = vec![1u8; 1 << 20];
    for _ in 0..33 {
        assert!(pair.received.is_empty(), "answered when the payload is over");
        assert!(pair.pump(&part).is_empty());
    }
    assert_eq!(pair.take_received(), simple_reply(22, 5));
    usable(&mut pair);
    pair.pump(&request(Command::Write, 0, 5, 0, SKIPPED_PAYLOAD_BYTES_MAX + 1));
    assert!(matches!(pair.connection.closed(), Some(Closed::Violation(_))));
    pair.assert_no_frame_lost();
}

#[test]
fn a_read_only_export_refuses_what_changes_it() {
    let mut pair = pair(Session { read_only: true, ..Session::default() });
    for command in [Command::Write, Command::Trim, Command::WriteZeroes] {
        let mut bytes = request(command, 0, 5, 0, 512);
        if command == Command::Write {
            bytes.extend([1; 512]);
        }
        assert!(pair.pump(&bytes).is_empty());
        assert_eq!(pair.take_received(), simple_reply(1, 5), "{command:?}");
    }
    usable(&mut pair);
}

#[test]
fn what_the_volume_does_not_admit_is_answered_with_its_error() {
    for (error, code) in [(RequestError::Io, 5), (RequestError::NoSpace, 28), (RequestError::Invalid, 22)] {
        let mut pair = pair(Session::default());
        pair.volume.inadmissible = Some(error);
        let bytes = [request(Command::Read, 0, 1, 0, 512), write(2, 0, &[1; 5000])].concat();
        assert!(pair.pump(&bytes).is_empty());
        assert_eq!(pair.take_received(), [simple_reply(code, 1), simple_reply(code, 2)].concat());
        pair.volume.inadmissible = None;
        usable(&mut pair);
        pair.assert_no_frame_lost();
    }
}

#[test]
fn an_error_of_the_volume_reaches_the_client() {
    for framing in [Framing::Simple, Framing::Structured] {
        let mut pair = pair(Session { framing, ..Session::default() });
        pair.holds_answers = true;
        assert!(pair.pump(&request(Command::Read, 0, 1, 0, 512)).is_empty());
        let (id, result) = pair.answers.pop().unwrap();
        drop_reply(&mut pair.volume, result);
        pair.answers.push((id, Err(RequestError::Io)));
        pair.answer();
        pair.turn();
        let answer = pair.take_received();
        if framing.has_chunks() {
            assert_eq!(answer[..20], chunk(ChunkKind::Error, true, 1, answer.len() as u32 - 20));
            assert_eq!(answer[20..24], 5u32.to_be_bytes());
            assert_eq!(usize::from(u16::from_be_bytes([answer[24], answer[25]])), answer.len() - 26);
        } else {
            assert_eq!(answer, simple_reply(5, 1));
        }
        pair.assert_no_frame_lost();
    }
}

#[test]
fn structured_reads_tell_data_from_holes() {
    let mut pair = pair(Session { framing: Framing::Structured, ..Session::default() });
    let data = pattern(3, 4096);
    assert!(pair.pump(&write(1, 8192, &data)).is_empty());
    assert_eq!(pair.take_received(), simple_reply(0, 1));
    // hole, data, hole
    assert!(pair.pump(&request(Command::Read, 0, 2, 0, 20480)).is_empty());
    let head =
        |kind, done, offset: u64, rest: u32| [&chunk(kind, done, 2, 8 + rest)[..], &offset.to_be_bytes()].concat();
    let hole = |done, offset, bytes: u32| {
        [head(ChunkKind::OffsetHole, done, offset, 4), bytes.to_be_bytes().to_vec()].concat()
    };
    let expected =
        [hole(false, 0, 8192), head(ChunkKind::OffsetData, false, 8192, 4096), data.clone(), hole(true, 12288, 8192)];
    assert_eq!(pair.take_received(), expected.concat());
    // In one chunk when asked for.
    assert!(pair.pump(&request(Command::Read, command_flags::DF, 2, 0, 20480)).is_empty());
    let expected = [head(ChunkKind::OffsetData, true, 0, 20480), vec![0; 8192], data.clone(), vec![0; 8192]];
    assert_eq!(pair.take_received(), expected.concat());
    // A few zeros beside data are data.
    assert!(pair.pump(&request(Command::Read, 0, 2, 8000, 200)).is_empty());
    let expected = [head(ChunkKind::OffsetData, true, 8000, 200), vec![0; 192], data[..8].to_vec()];
    assert_eq!(pair.take_received(), expected.concat());
    // Nothing but zeros is a hole however short.
    assert!(pair.pump(&request(Command::Read, 0, 2, 1, 3)).is_empty());
    assert_eq!(pair.take_received(), hole(true, 1, 3));
    pair.assert_no_frame_lost();
}

#[test]
fn block_status_answers_each_context() {
    let mut pair = pair(Session { framing: Framing::Structured, contexts: true, ..Session::default() });
    assert!(pair.pump(&write(1, 4096, &[1; 8192])).is_empty());
    pair.take_received();
    assert!(pair.pump(&request(Command::BlockStatus, 0, 2, 0, 20480)).is_empty());
    let status = |done, context: u32, runs: &[(u32, u32)]| {
        let mut b = chunk(ChunkKind::BlockStatus, done, 2, 4 + 8 * runs.len() as u32).to_vec();
        b.extend_from_slice(&context.to_be_bytes());
        runs.iter().for_each(|(bytes, state)| {
            b.extend_from_slice(&bytes.to_be_bytes());
            b.extend_from_slice(&state.to_be_bytes());
        });
        b
    };
    let expected = [
        status(false, 1, &[(4096, 3), (8192, 0), (8192, 3)]),
        status(false, 2, &[(4096, 0), (8192, 1), (8192, 0)]),
        status(true, 3, &[(4096, 0), (8192, 1), (8192, 0)]),
    ];
    assert_eq!(pair.take_received(), expected.concat());
    assert!(pair.pump(&request(Command::BlockStatus, command_flags::REQ_ONE, 2, 5000, 100)).is_empty());
    let expected = [status(false, 1, &[(100, 0)]), status(false, 2, &[(100, 1)]), status(true, 3, &[(100, 1)])];
    assert_eq!(pair.take_received(), expected.concat());
    assert!(pair.pump(&request(Command::BlockStatus, command_flags::REQ_ONE, 2, 0, 20480)).is_empty());
    let expected = [status(false, 1, &[(4096, 3)]), status(false, 2, &[(4096, 0)]), status(true, 3, &[(4096, 0)])];
    assert_eq!(pair.take_received(), expected.concat());
    assert_eq!(pair.connection.in_flight(), 0);
}

#[test]
fn after_a_block_status_others_have_their_turn() {
    let mut pair = pair(Session { framing: Framing::Structured, contexts: true, ..Session::default() });
    let asked: Vec<u8> = (0..5).flat_map(|n| request(Command::BlockStatus, 0, n, 0, SIZE as u32)).collect();
    assert!(pair.pump_once(&[asked, request(Command::Flush, 0, 5, 0, 0)].concat()).is_empty());
    let answer = 3 * (CHUNK_BYTES + 4 + 8);
    for turn in 1..5 {
        assert_eq!((pair.take_received().len(), pair.connection.waits_for()), (answer, WaitsFor::Turn), "turn {turn}");
        pair.turn();
    }
    assert_eq!(pair.take_received().len(), answer);
    pair.turn();
    assert_eq!((pair.take_received().len(), pair.connection.waits_for()), (SIMPLE_REPLY_BYTES, WaitsFor::Readable));
}

#[test]
fn good_bye_finishes_what_was_asked_before_it() {
    let mut pair = pair(Session::default());
    pair.holds_answers = true;
    let bytes = [
        write(1, 0, &[9; 4096]),
        request(Command::Read, 0, 2, 0, 512),
        request(Command::Disconnect, 0, 3, 0, 0),
        request(Command::Read, 0, 4, 0, 512),
    ];
    assert!(pair.pump(&bytes.concat()).is_empty());
    assert_eq!(pair.connection.closed(), None);
    assert_eq!(pair.connection.waits_for(), WaitsFor::Nothing);
    assert_eq!(pair.answers.len(), 2, "nothing after good-bye is executed");
    pair.answer();
    pair.turn();
    assert_eq!(pair.connection.closed(), Some(&Closed::Disconnected));
    assert_eq!(pair.take_received(), [&simple_reply(0, 1)[..], &simple_reply(0, 2), &[9; 512]].concat());
    assert!(pair.volume.memory.take_hangups().is_empty());
    pair.assert_no_frame_lost();
}

#[test]
fn good_bye_with_nothing_in_flight_closes_at_once() {
    let mut pair = pair(Session::default());
    pair.pump(&request(Command::Disconnect, 0, 3, 0, 0));
    assert_eq!(pair.connection.closed(), Some(&Closed::Disconnected));
}

#[test]
fn a_client_that_vanishes_abandons_its_requests() {
    let mut pair = pair(Session::default());
    assert!(pair.pump(&write(1, 0, &[9; 8192])).is_empty());
    pair.holds_answers = true;
    let bytes = [request(Command::Read, 0, 2, 0, 8192), write(3, 0, &[8; 512])].concat();
    // The last request arrives in part only.
    assert!(pair.pump(&[&bytes[..], &write(4, 8192, &[7; 9000])[..5000]].concat()).is_empty());
    assert!(pair.connection.stalled_since().is_some(), "frames are held for a payload");
    pair.client = None;
    pair.turn();
    assert_eq!(pair.connection.closed(), Some(&Closed::HungUp));
    let ids = pair.volume.memory.take_hangups();
    assert_eq!(ids, pair.answers.iter().map(|(id, _)| *id).collect::<Vec<_>>());
    assert!(ids.iter().all(|id| Connection::number_of(*id) == 7));
    // Their answers come up all the same, and are handed back.
    pair.answer();
    pair.assert_no_frame_lost();
}

#[test]
fn pieces_are_handed_back_when_their_last_byte_has_left_and_not_before() {
    let mut pair = pair(Session::default());
    let payload = pattern(6, BLOCK);
    assert!(pair.pump(&write(1, 0, &payload)).is_empty());
    pair.take_received();
    pair.client_reads = false;
    let reads: Vec<u8> = (0..900).flat_map(|cookie| request(Command::Read, 0, cookie, 0, BLOCK as u32)).collect();
    assert!(pair.pump(&reads).is_empty());
    let answer_bytes = SIMPLE_REPLY_BYTES + BLOCK;
    let mut cut_inside_an_answer = false;
    while pair.connection.has_unsent() {
        // All that has left is in the socket: what the client takes out now is exactly that.
        pair.client_reads = true;
        pair.listen();
        pair.client_reads = false;
        assert_eq!(pair.volume.answers_sent, pair.received.len() / answer_bytes);
        cut_inside_an_answer |= !pair.received.len().is_multiple_of(answer_bytes);
        pair.turn();
    }
    assert!(cut_inside_an_answer, "a socket's buffer is no multiple of an answer");
    assert_eq!(pair.volume.answers_sent, 900);
    pair.client_reads = true;
    pair.listen();
    let expected: Vec<u8> = (0..900).flat_map(|cookie| [&simple_reply(0, cookie)[..], &payload].concat()).collect();
    assert!(pair.take_received() == expected);
    pair.assert_no_frame_lost();
}

#[test]
fn reply_heads_are_bounded_when_nobody_reads_them() {
    let mut pair = pair(Session { framing: Framing::Structured, contexts: true, ..Session::default() });
    // Every other block, so that a status has as many extents as there are blocks.
    let writes: Vec<u8> =
        (0..SIZE / BLOCK_BYTES / 2).flat_map(|n| write(n, n * 2 * BLOCK_BYTES, &[1; BLOCK])).collect();
    assert!(pair.pump(&writes).is_empty());
    pair.take_received();
    pair.client_reads = false;
    let asked: Vec<u8> = (0..1000).flat_map(|n| request(Command::BlockStatus, 0, n, 0, SIZE as u32)).collect();
    assert!(pair.pump(&asked).is_empty());
    (0..1000).for_each(|_| pair.turn());
    let largest = 3 * (CHUNK_BYTES + 4 + 8 * EXTENTS_MAX);
    assert!(pair.connection.replies.head_bytes() > REPLY_HEAD_BYTES_MAX, "the bound is reached");
    assert!(pair.connection.replies.head_bytes() <= REPLY_HEAD_BYTES_MAX + largest);
    pair.client_reads = true;
    for _ in 0..1000 {
        pair.turn();
    }
    let one = 3 * (CHUNK_BYTES + 4 + 8 * 256);
    assert_eq!(pair.take_received().len(), 1000 * one);
}

#[test]
fn slots_are_used_again() {
    let mut pair = pair(Session::default());
    for cookie in 0..3000 {
        assert!(pair.pump_once(&request(Command::Flush, 0, cookie, 0, 0)).is_empty());
    }
    assert!(pair.connection.slots.len() <= 3, "{}", pair.connection.slots.len());
    assert_eq!(pair.take_received().len(), 3000 * SIMPLE_REPLY_BYTES);
}

#[test]
fn a_client_that_vanishes_before_its_answers_left_loses_no_frame() {
    let mut pair = pair(Session::default());
    assert!(pair.pump(&write(1, 0, &vec![9; SIZE as usize])).is_empty());
    pair.client_reads = false;
    pair.pump(&request(Command::Read, 0, 2, 0, SIZE as u32));
    assert!(pair.connection.has_unsent());
    pair.client = None;
    pair.turn();
    assert!(pair.connection.closed().is_some());
    assert!(pair.volume.memory.take_hangups().is_empty(), "it was answered");
    pair.assert_no_frame_lost();
}

#[test]
fn a_wrong_magic_closes_and_gives_everything_back() {
    let mut pair = pair(Session::default());
    pair.holds_answers = true;
    let mut bad = request(Command::Read, 0, 1, 0, 512);
    bad[0] ^= 1;
    pair.pump(&[request(Command::Read, 0, 1, 0, 512), bad].concat());
    assert!(matches!(pair.connection.closed(), Some(Closed::Violation(_))));
    assert_eq!(pair.volume.memory.take_hangups().len(), 1);
    assert_eq!(pair.connection.waits_for(), WaitsFor::Nothing);
    pair.answer();
    pair.assert_no_frame_lost();
}

#[test]
fn without_frames_a_connection_waits_and_goes_on_where_it_was() {
    let mut pair = pair(Session::default());
    pair.volume.refuses_frames = true;
    let bytes = [request(Command::Read, 0, 1, 0, 1), write(2, 100, &[5; 10_000]), write(3, 0, &[6; 100])].concat();
    assert!(pair.pump(&bytes).is_empty());
    assert_eq!(pair.connection.waits_for(), WaitsFor::Frames);
    assert_eq!(pair.connection.stalled_since(), None, "it is not the client's fault");
    assert_eq!(pair.take_received(), [&simple_reply(0, 1)[..], &[0]].concat());
    pair.turn();
    assert_eq!(pair.connection.waits_for(), WaitsFor::Frames);
    // Whatever else arrives stays in the socket.
    let more = vec![write(4, 0, &[7; 4096]); 200].concat();
    let left = pair.pump(&more).to_vec();
    assert!(!left.is_empty(), "a connection that waits reads nothing");
    pair.volume.refuses_frames = false;
    assert!(pair.pump(&left).is_empty());
    let answers = [simple_reply(0, 2), simple_reply(0, 3)].into_iter().chain([simple_reply(0, 4); 200]);
    assert_eq!(pair.take_received(), answers.collect::<Vec<_>>().concat());
    let content = pair.content();
    assert_eq!(content[..4096], [7; 4096]);
    assert_eq!(content[4096..10_100], [5; 6004]);
    pair.assert_no_frame_lost();
}

#[test]
fn requests_in_flight_are_bounded_in_number() {
    let mut pair = pair(Session::default());
    pair.holds_answers = true;
    let bytes: Vec<u8> = (0..2000).flat_map(|cookie| request(Command::Flush, 0, cookie, 0, 0)).collect();
    assert!(pair.pump(&bytes).is_empty());
    assert_eq!(pair.connection.in_flight(), REQUESTS_MAX);
    assert_eq!(pair.answers.len(), REQUESTS_MAX);
    assert_eq!(pair.connection.waits_for(), WaitsFor::Replies);
    pair.answers.truncate(REQUESTS_MAX);
    pair.answer();
    pair.turn();
    assert_eq!(pair.connection.waits_for(), WaitsFor::Turn);
    pair.holds_answers = false;
    pair.turn();
    pair.turn();
    let expected: Vec<u8> = (0..2000).flat_map(|cookie| simple_reply(0, cookie)).collect();
    assert_eq!(pair.take_received(), expected);
}

#[test]
fn answers_at_once_count_as_in_flight_until_they_have_left() {
    let mut pair = pair(Session::default());
    pair.client_reads = false;
    let bytes: Vec<u8> = (0..40_000).flat_map(|cookie| request(Command::Unknown(9), 0, cookie, 0, 0)).collect();
    let left = pair.pump(&bytes).to_vec();
    assert_eq!(pair.connection.closed(), None);
    assert!(pair.connection.in_flight() <= REQUESTS_MAX);
    assert!(pair.connection.has_unsent(), "{} of {} left", left.len(), bytes.len());
    assert!(!left.is_empty(), "the socket of a client that does not read is not read either");
    pair.client_reads = true;
    assert!(pair.pump(&left).is_empty());
    let expected: Vec<u8> = (0..40_000).flat_map(|cookie| simple_reply(22, cookie)).collect();
    assert!(pair.take_received() == expected);
}

#[test]
fn requests_in_flight_are_bounded_in_bytes() {
    let mut pair = pair(Session::default());
    pair.holds_answers = true;
    let reads = REQUEST_BYTES_IN_FLIGHT_MAX / SIZE;
    let bytes: Vec<u8> = (0..reads + 3).flat_map(|cookie| request(Command::Read, 0, cookie, 0, SIZE as u32)).collect();
    assert!(pair.pump(&bytes).is_empty());
    assert_eq!(pair.answers.len() as u64, reads);
    assert_eq!(pair.connection.waits_for(), WaitsFor::Replies);
    pair.holds_answers = false;
    for _ in 0..10_000 {
        pair.turn();
    }
    assert_eq!(pair.take_received().len() as u64, (reads + 3) * (SIZE + 16));
    pair.assert_no_frame_lost();
}

#[test]
fn a_slow_reader_is_seen_as_stalled_and_gets_its_bytes_in_the_end() {
    let mut pair = pair(Session::default());
    let payload = pattern(4, SIZE as usize);
    assert!(pair.pump(&write(1, 0, &payload)).is_empty());
    pair.take_received();
    pair.client_reads = false;
    pair.now = Instant(5);
    pair.pump(&request(Command::Read, 0, 2, 0, SIZE as u32));
    assert!(pair.connection.has_unsent());
    assert_eq!(pair.connection.stalled_since(), Some(Instant(5)));
    pair.now = Instant(9);
    pair.turn();
    assert_eq!(pair.connection.stalled_since(), Some(Instant(5)), "trying again is no progress");
    pair.client_reads = true;
    pair.listen();
    pair.client_reads = false;
    pair.turn();
    assert_eq!(pair.connection.stalled_since(), Some(Instant(9)), "some bytes moved");
    pair.client_reads = true;
    for _ in 0..100 {
        pair.turn();
    }
    assert_eq!(pair.connection.stalled_since(), None);
    assert!(pair.take_received() == [&simple_reply(0, 2)[..], &payload].concat());
    pair.assert_no_frame_lost();
}

#[test]
fn runs_of_whole_blocks_and_what_interrupts_them_end_up_in_place() {
    let mut pair = pair(Session::default());
    let mut model = vec![0u8; SIZE as usize];
    let mut expected = Vec::new();
    let mut bytes = Vec::new();
    let put = |bytes: &mut Vec<u8>, model: &mut Vec<u8>, expected: &mut Vec<u8>, cookie: u64, at: usize, length| {
        let payload = pattern(cookie, length);
        bytes.extend(write(cookie, at as u64, &payload));
        model[at..at + length].copy_from_slice(&payload);
        expected.extend(simple_reply(0, cookie));
    };
    for cookie in 0..500u64 {
        put(&mut bytes, &mut model, &mut expected, cookie, (cookie as usize * 37 % 256) * 4096, 4096);
        match cookie % 61 {
            20 => put(&mut bytes, &mut model, &mut expected, 1000 + cookie, 777, 513),
            40 => put(&mut bytes, &mut model, &mut expected, 2000 + cookie, 4000, 40_000),
            50 => {
                bytes.extend(request(Command::Read, 0, 3000 + cookie, 0, 100));
                expected.extend(simple_reply(0, 3000 + cookie));
                expected.extend_from_slice(&model[..100]);
            }
            _ => {}
        }
    }
    // All at once, then in pieces that end anywhere.
    assert!(pair.pump(&bytes).is_empty());
    assert!(pair.take_received() == expected);
    for step in [1, 27, 28, 29, 4095, 4124, 4125, 30_000] {
        for part in bytes[..60_000].chunks(step) {
            assert!(pair.pump_once(part).is_empty());
        }
        for part in bytes[60_000..].chunks(100_000) {
            assert!(pair.pump(part).is_empty());
        }
        pair.turn();
        // Reads in between see what this round has written; the model only knows the end.
        assert_eq!(pair.take_received().len(), expected.len(), "in steps of {step}");
        assert!(pair.content() == model, "in steps of {step}");
    }
    pair.assert_no_frame_lost();
}

impl Pair {
    /// As `pump`, with one turn for each part that was sent.
    fn pump_once<'a>(&mut self, mut bytes: &'a [u8]) -> &'a [u8] {
        for _ in 0..100 {
            if bytes.is_empty() {
                break;
            }
            match self.client.as_mut().unwrap().write(bytes) {
                Ok(n) => bytes = &bytes[n..],
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
            self.turn();
        }
        bytes
    }
}

#[test]
#[should_panic(expected = "answered once")]
fn a_second_answer_is_a_bug_of_ours() {
    let mut pair = pair(Session::default());
    pair.holds_answers = true;
    assert!(pair.pump(&request(Command::Flush, 0, 1, 0, 0)).is_empty());
    let (id, _) = pair.answers.pop().unwrap();
    pair.connection.reply(&mut pair.volume, id, Ok(Pieces::new()));
    pair.connection.reply(&mut pair.volume, id, Ok(Pieces::new()));
}

#[test]
#[should_panic(expected = "all of it")]
fn an_answer_that_is_too_short_never_leaves() {
    let mut pair = pair(Session::default());
    pair.holds_answers = true;
    assert!(pair.pump(&request(Command::Read, 0, 1, 0, 512)).is_empty());
    let (id, _) = pair.answers.pop().unwrap();
    pair.connection.reply(&mut pair.volume, id, Ok(Pieces::new()));
}

#[test]
fn answers_may_come_in_any_order() {
    let mut pair = pair(Session::default());
    pair.holds_answers = true;
    let bytes: Vec<u8> = (0..50).flat_map(|cookie| request(Command::Flush, 0, cookie, 0, 0)).collect();
    assert!(pair.pump(&bytes).is_empty());
    pair.answers.reverse();
    pair.answer();
    pair.turn();
    let expected: Vec<u8> = (0..50).rev().flat_map(|cookie| simple_reply(0, cookie)).collect();
    assert_eq!(pair.take_received(), expected);
}

#[test]
fn bytes_left_from_the_handshake_come_first() {
    let mut pair = pair(Session::default());
    let bytes = [write(1, 0, &[3; 6000]), request(Command::Read, 0, 2, 0, 10)].concat();
    let (early, late) = bytes.split_at(3000);
    pair.connection.pending = early.to_vec();
    pair.connection.waits_for = WaitsFor::Turn;
    assert!(pair.pump(late).is_empty());
    assert_eq!(pair.take_received(), [&simple_reply(0, 1)[..], &simple_reply(0, 2), &[3; 10]].concat());
}

/// A request of the model.
#[derive(Clone, Debug)]
enum Op {
    Write { offset: u64, length: usize, seed: u64 },
    Read { offset: u64, length: u32 },
    Zero { offset: u64, length: u32, trim: bool },
    Flush,
    Wrong,
}

fn op() -> impl Strategy<Value = Op> {
    let block = (0..SIZE / BLOCK_BYTES).prop_map(|block| block * BLOCK_BYTES);
    let range = (0..SIZE - 70_000, 1..70_000u32);
    prop_oneof![
        6 => (block, any::<u64>()).prop_map(|(offset, seed)| Op::Write { offset, length: BLOCK, seed }),
        2 => (range.clone(), any::<u64>())
            .prop_map(|((offset, length), seed)| Op::Write { offset, length: length as usize, seed }),
        2 => range.clone().prop_map(|(offset, length)| Op::Read { offset, length }),
        1 => (range, any::<bool>()).prop_map(|((offset, length), trim)| Op::Zero { offset, length, trim }),
        1 => Just(Op::Flush),
        1 => Just(Op::Wrong),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn any_requests_in_any_slices_do_what_a_flat_array_does(
        ops in proptest::collection::vec((op(), 1usize..4), 1..60),
        slices in proptest::collection::vec(1usize..20_000, 1..40),
    ) {
        let mut pair = pair(Session::default());
        let mut model = vec![0u8; SIZE as usize];
        let mut bytes = Vec::new();
        // Error and payload of each answer, by cookie: what is refused overtakes what the volume answers.
        let mut expected = vec![(0, Vec::new())];
        let mut cookie = 0;
        // Repeated, so that there are runs of whole blocks as well.
        for (op, repeats) in ops {
            let repeats = if matches!(op, Op::Write { length: BLOCK, .. }) { repeats * 8 } else { 1 };
            for _ in 0..repeats {
                cookie += 1;
                let mut answer = (if matches!(op, Op::Wrong) { 22 } else { 0 }, Vec::new());
                match op {
                    Op::Write { offset, length, seed } => {
                        let payload = pattern(seed ^ cookie, length);
                        bytes.extend(write(cookie, offset, &payload));
                        model[offset as usize..offset as usize + length].copy_from_slice(&payload);
                    }
                    Op::Read { offset, length } => {
                        bytes.extend(request(Command::Read, 0, cookie, offset, length));
                        answer.1 = model[offset as usize..(offset + u64::from(length)) as usize].to_vec();
                    }
                    Op::Zero { offset, length, trim } => {
                        let command = if trim { Command::Trim } else { Command::WriteZeroes };
                        bytes.extend(request(command, 0, cookie, offset, length));
                        model[offset as usize..(offset + u64::from(length)) as usize].fill(0);
                    }
                    Op::Flush => bytes.extend(request(Command::Flush, 0, cookie, 0, 0)),
                    Op::Wrong => bytes.extend(request(Command::Unknown(300), 0, cookie, 0, 0)),
                }
                expected.push(answer);
            }
        }
        let mut rest = &bytes[..];
        for slice in slices.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (part, behind) = rest.split_at((*slice).min(rest.len()));
            prop_assert!(pair.pump_once(part).is_empty());
            rest = behind;
        }
        for _ in 0..50 {
            pair.turn();
        }
        let received = pair.take_received();
        let mut at = &received[..];
        let mut answered = 0;
        while let Some(head) = at.first_chunk() {
            let (error, cookie) = decode_simple_reply(head).expect("a reply begins here");
            let (expected_error, payload) = &expected[cookie as usize];
            at = &at[SIMPLE_REPLY_BYTES..];
            prop_assert_eq!(error, *expected_error);
            prop_assert!(at.starts_with(payload), "payload of {}", cookie);
            at = &at[payload.len()..];
            answered += 1;
        }
        prop_assert_eq!((at.len(), answered), (0, cookie));
        prop_assert!(pair.content() == model);
        pair.assert_no_frame_lost();
    }

    #[test]
    fn any_bytes_are_survived_without_a_lost_frame(
        framing in prop_oneof![Just(Framing::Simple), Just(Framing::Structured), Just(Framing::Extended)],
        heads in proptest::collection::vec(
            (0u16..10, 0u16..64, 0..SIZE + 100, 0u32..100_000, proptest::collection::vec(any::<u8>(), 0..300)), 0..20),
    ) {
        let mut pair = pair(Session { framing, contexts: framing.has_chunks(), read_only: false });
        for (number, flags, offset, length, tail) in heads {
            let head = RequestHead { flags, command: Command::of(number), cookie: 1, offset, length: length.into() };
            let head = if framing == Framing::Extended { head.encode_extended().to_vec() } else { head.encode().to_vec() };
            let bytes = [head, tail].concat();
            pair.pump_once(&bytes);
            if pair.connection.closed().is_some() {
                break;
            }
        }
        pair.client = None;
        pair.turn();
        prop_assert!(pair.connection.closed().is_some() || pair.connection.waits_for() == WaitsFor::Nothing
            || pair.connection.has_unsent());
        pair.connection.close(&mut pair.volume);
        pair.assert_no_frame_lost();
    }
}

#[test]
fn what_a_client_holds_is_counted_until_it_has_done_its_part() {
    let mut pair = pair(Session::default());
    let length = 16 * 4096;
    pair.volume.memory.limit_holds(20);
    pair.pump(&write(1, 0, &pattern(4, length)));
    pair.take_received();
    assert_eq!(pair.volume.memory.held(), 0, "a payload that is whole is the volume's affair");
    // The second read finds no room until the answer to the first has left.
    pair.holds_answers = true;
    let reads = [request(Command::Read, 0, 2, 100, 4096), request(Command::Read, 0, 3, 0, length as u32 + 8192)];
    pair.pump(&[&reads[0][..], &reads[0], &reads[1]].concat());
    assert_eq!((pair.volume.memory.held(), pair.connection.waits_for()), (4, WaitsFor::Frames));
    pair.holds_answers = false;
    for _ in 0..100 {
        pair.turn();
    }
    assert_eq!(pair.take_received().len(), 3 * 16 + 2 * 4096 + length + 8192);
    assert_eq!(pair.volume.memory.held(), 0);
    // Half a payload is held, and with its connection it is let go.
    let half = write(4, 0, &pattern(4, length));
    pair.pump(&half[..half.len() / 2]);
    assert_eq!(pair.volume.memory.held(), 16);
    pair.connection.close(&mut pair.volume);
    assert_eq!(pair.volume.memory.held(), 0);
    pair.assert_no_frame_lost();
}

#[test]
fn a_payload_that_trickles_in_is_a_stall() {
    let mut pair = pair(Session::default());
    let bytes = write(1, 0, &pattern(4, SIZE as usize / 2));
    let (first, rest) = bytes.split_at(4096);
    pair.now = Instant(5);
    pair.pump(first);
    assert_eq!(pair.connection.stalled_since(), Some(Instant(5)));
    pair.now = Instant(6);
    pair.pump(&rest[..4096]);
    assert_eq!(pair.connection.stalled_since(), Some(Instant(5)), "too little to count");
    pair.now = Instant(7);
    pair.pump(&rest[4096..4096 + PROGRESS_BYTES_MIN as usize]);
    assert_eq!(pair.connection.stalled_since(), Some(Instant(7)));
    pair.pump(&rest[4096 + PROGRESS_BYTES_MIN as usize..]);
    assert_eq!(pair.connection.stalled_since(), None, "it is whole");
}
