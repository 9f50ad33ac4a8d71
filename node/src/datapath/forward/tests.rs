//! A forwarded volume before an owner that is a real connection to a volume in memory: what clients are answered when the
//! connection to the owner breaks anywhere.

use super::volume::Forwarded;
use super::*;
use crate::datapath::connections::Home;
use forebay_core::api::{Piece, Pieces, Request, RequestError, Source};
use forebay_core::roles::Client;
use forebay_core::types::*;
use forebay_front::Backend;
use forebay_front::memory::MemoryVolume;
use forebay_front::nbd::connection::Scratch;
use forebay_front::nbd::handshake::{ExportInfo, Negotiated};
use forebay_front::nbd::proto::{ContextSet, Framing};
use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;

const SIZE: u64 = 1 << 20;
const NOW: Instant = Instant(0);
const CLIENT: ClientId = ClientId(7);

/// The owner's end of a connection.
struct Far {
    connection: Connection,
    scratch: Scratch,
}

/// The forwarding end and the owner's end of a volume.
struct Stand {
    volume: Forwarded,
    memory: MemoryVolume,
    owner: Option<Owner>,
    far: Option<Far>,
    hot: Vec<u8>,
    numbers: u32,
    answers: BTreeMap<u64, Result<Vec<u8>, RequestError>>,
}

impl Stand {
    fn new() -> Stand {
        let mut volume = Forwarded::new(VolumeId([1; 16]), "vm1".to_owned(), Arc::default());
        volume.size_bytes = SIZE;
        volume.open_arena().unwrap();
        let mut stand = Stand {
            volume,
            memory: MemoryVolume::new(SIZE, 16_384).unwrap(),
            owner: None,
            far: None,
            hot: vec![0; HOT_BYTES],
            numbers: 0,
            answers: BTreeMap::new(),
        };
        stand.connect();
        stand
    }

    fn connect(&mut self) {
        let (near, far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        far.set_nonblocking(true).unwrap();
        let request_bytes_max = 32 << 20;
        let (name, description) = ("vm1".to_owned(), String::new());
        let export = ExportInfo { name, size_bytes: SIZE, description, read_only: false, request_bytes_max };
        let contexts = ContextSet::default();
        let negotiated =
            Negotiated { client: Client::Local, export, framing: Framing::Extended, contexts, leftover: Vec::new() };
        self.numbers += 1;
        let connection = Connection::new(Channel::plain(far.into()), self.numbers, negotiated, NOW);
        self.far = Some(Far { connection, scratch: Scratch::default() });
        self.owner = Some(Owner::new(Channel::plain(near.into())));
    }

    /// The connection breaks: what the owner had taken it carries out, what it had not it never will.
    fn cut(&mut self) {
        if let Some(mut far) = self.far.take() {
            far.connection.close(&mut self.memory);
        }
        self.owner = None;
        self.volume.ask_again();
    }

    /// The owner works for a round, then this side.
    fn turn(&mut self) -> Result<(), String> {
        let Some(owner) = &mut self.owner else { return Ok(()) };
        owner.send(&mut self.volume)?;
        if let Some(Far { connection, scratch }) = &mut self.far {
            connection.receive(&mut self.memory, scratch, NOW);
            let mut answers = Vec::new();
            self.memory.take_answers(&mut answers);
            for (id, result) in answers {
                if Connection::number_of(id) == connection.number() {
                    connection.reply(&mut self.memory, id, result);
                }
            }
            connection.flush_replies(&mut self.memory, scratch, NOW);
        }
        let heard = owner.receive(&mut self.volume, &mut self.hot);
        for (id, result) in std::mem::take(&mut self.volume.answers) {
            let result = result.map(|pieces| self.bytes_of(pieces));
            assert!(self.answers.insert(id.0, result).is_none(), "{id} is answered twice");
        }
        heard
    }

    fn bytes_of(&mut self, pieces: Pieces) -> Vec<u8> {
        let mut desk = self.volume.desk(NOW);
        let mut bytes = Vec::new();
        for Piece { source, length } in &pieces {
            let Source::Frame(frame, from) = source else { panic!("a forwarded read lies in frames") };
            // SAFETY: the frame is named in an answer that has not been sent, and the piece lies within it.
            bytes.extend_from_slice(unsafe {
                std::slice::from_raw_parts(desk.frame(*frame).as_ptr().add(usize::from(*from)), *length as usize)
            });
        }
        desk.sent(pieces);
        bytes
    }

    fn write(&mut self, id: u64, offset: u64, bytes: &[u8]) {
        let blocks = (offset % BLOCK_BYTES + bytes.len() as u64).div_ceil(BLOCK_BYTES) as u32;
        let mut frames = Frames::new();
        let mut desk = self.volume.desk(NOW);
        assert!(desk.take_frames(CLIENT, 0, blocks, &mut frames));
        let (mut payload, mut at) = (Payloads::new(), 0);
        for frame in frames {
            let from = (offset + at as u64) % BLOCK_BYTES;
            let part = (bytes.len() - at).min((BLOCK_BYTES - from) as usize);
            // SAFETY: the frame was taken just now, and the part lies within it.
            unsafe {
                desk.frame(frame)
                    .add(from as usize)
                    .copy_from_nonoverlapping(std::ptr::NonNull::from(&bytes[at]), part);
            }
            payload.push(Payload { frame, checksum: 0 });
            at += part;
        }
        desk.submit(RequestId(id), Request::Write { offset, length: bytes.len() as u32, payload, fua: false });
    }

    fn read(&mut self, id: u64, offset: u64, length: u32) {
        self.volume.desk(NOW).submit(RequestId(id), Request::Read { offset, length });
    }

    fn settle(&mut self) {
        for _ in 0..1000 {
            self.turn().expect("the owner answers as it should");
        }
    }
}

fn pattern(seed: u64, length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| (seed.wrapping_mul(31) + at * 7 + (at >> 8)) as u8 | 1).collect()
}

#[test]
fn requests_of_all_kinds_have_the_owners_answers() {
    let mut stand = Stand::new();
    let bytes = pattern(1, 300_001);
    stand.write(1, 4095, &bytes);
    stand.read(2, 4000, 301_000);
    let zero = Request::Zero { offset: 8192, length: 70_000, hole: true, fua: true };
    stand.volume.desk(NOW).submit(RequestId(3), zero);
    stand.volume.desk(NOW).submit(RequestId(4), Request::Flush);
    stand.volume.desk(NOW).submit(RequestId(5), Request::Prefetch { offset: 0, length: 4096 });
    stand.read(6, 4000, 301_000);
    stand.settle();
    let mut model = vec![0; 301_000];
    model[95..300_096].copy_from_slice(&bytes);
    assert!(stand.answers[&2].as_ref() == Ok(&model));
    model[4192..74_192].fill(0);
    assert!(stand.answers[&6].as_ref() == Ok(&model));
    for id in [1, 3, 4, 5] {
        assert_eq!(stand.answers[&id], Ok(Vec::new()), "request {id}");
    }
    assert_eq!(stand.volume.figures.again.load(std::sync::atomic::Ordering::Relaxed), 0);
}

#[test]
fn wherever_the_connection_breaks_each_request_is_answered_once_and_in_the_end() {
    for turns in 0..12 {
        let mut stand = Stand::new();
        let (first, second) = (pattern(1, 900_000), pattern(2, 700_000));
        stand.write(1, 0, &first);
        stand.read(2, 0, 1 << 20);
        stand.write(3, 100, &second);
        stand.read(4, 0, 1 << 20);
        for _ in 0..turns {
            stand.turn().expect("nothing is wrong yet");
        }
        stand.cut();
        stand.connect();
        stand.settle();
        assert_eq!(stand.answers.keys().copied().collect::<Vec<_>>(), [1, 2, 3, 4], "cut after {turns} turns");
        stand.read(5, 0, 1 << 20);
        stand.settle();
        let mut model = vec![0; 1 << 20];
        model[..900_000].copy_from_slice(&first);
        model[100..700_100].copy_from_slice(&second);
        assert!(stand.answers[&5].as_ref() == Ok(&model), "cut after {turns} turns");
    }
}

#[test]
fn what_nobody_waits_for_is_not_asked_again() {
    let mut stand = Stand::new();
    stand.memory.hold_requests(true);
    stand.write(1, 0, &pattern(1, 4096));
    stand.turn().expect("the owner takes it");
    stand.write(2, 0, &pattern(2, 4096));
    stand.volume.desk(NOW).hangup(vec![RequestId(1), RequestId(2)]);
    stand.cut();
    stand.memory.hold_requests(false);
    stand.connect();
    stand.read(3, 0, 4096);
    stand.settle();
    assert_eq!(stand.answers.keys().copied().collect::<Vec<_>>(), [3]);
    assert!(stand.answers[&3].as_ref() == Ok(&vec![0; 4096]));
}

#[test]
fn an_owner_that_is_being_stopped_gives_no_answer_that_a_client_sees() {
    let mut stand = Stand::new();
    stand.read(1, 0, 512);
    stand.owner.as_mut().unwrap().send(&mut stand.volume).unwrap();
    let (near, far) = UnixStream::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    let mut owner = Owner::new(Channel::plain(near.into()));
    let head = forebay_front::nbd::proto::extended_chunk(forebay_front::nbd::proto::ChunkKind::Error, true, 1, 0, 6);
    std::io::Write::write_all(&mut &far, &[&head[..], &108u32.to_be_bytes(), &[0, 0]].concat()).unwrap();
    let why = owner.receive(&mut stand.volume, &mut stand.hot).expect_err("the connection ends");
    assert!(why.contains("stopped"), "{why}");
    assert!(stand.volume.answers.is_empty());
}

#[test]
fn frames_come_back_and_a_client_leaves_half_of_them_to_others() {
    let mut stand = Stand::new();
    let mut frames = Frames::new();
    let mut desk = stand.volume.desk(NOW);
    assert!(desk.take_frames(CLIENT, 0, 8193, &mut frames), "the largest request that is not aligned");
    assert!(!desk.take_frames(CLIENT, 8193, 512, &mut Frames::new()), "half of all is one client's at most");
    desk.withdraw(CLIENT);
    let mut others = Frames::new();
    assert!(desk.take_frames(ClientId(8), 0, 8193, &mut others));
    assert!(!desk.take_frames(ClientId(9), 0, 8000, &mut Frames::new()));
    assert!(!desk.take_frames(ClientId(10), 0, 1, &mut Frames::new()), "nobody passes who has waited longer");
    desk.return_frames(&frames);
    assert!(desk.take_frames(ClientId(9), 0, 8000, &mut Frames::new()));
}
