//! Transcripts: what two nodes say to each other at the beginning of a channel and of a connection that forwards, byte by byte,
//! with a node of this version in the place of either. What a later version offers changes nothing of what follows, because
//! both use the newest version that both speak.
//!
//! The bytes were computed by a second implementation of `docs/protocol.md`, "Bytes on a link", not by the code under test.
//! They never change: a node of this version will be talked to by those that are not written yet.

use super::forward::arrival;
use super::*;
use std::io::Read;
use std::net::{TcpListener, TcpStream};

const CALLER_HELLO: &str = "\
    46620100900000000000000000000000000000000000000093a8e310be93cff646424c494e4b00000100010000000000c1c1\
    c1c1c1c1c1c1c1c1c1c1c1c1c1c1610000000000000007000000000000006161616161616161616161616161616101010101\
    01010101010101010101010105616c7068610000000000000000000000000000000000000000000000000000000000000000\
    0000000000000000000000000000000000000000000000000000";
const CALLED_HELLO: &str = "\
    466201009000000000000000000000000000000000000000aa779defb63a317546424c494e4b00000100010000000000c1c1\
    c1c1c1c1c1c1c1c1c1c1c1c1c1c1620000000000000064000000000000006262626262626262626262626262626201010101\
    0101010101010101010101010462657461000000000000000000000000000000000000000000000000000000000000000000\
    0000000000000000000000000000000000000000000000000000";
const LATER_CALLER_HELLO: &str = "\
    4662010094000000000000000000000000000000000000008933e9cf985f04aa46424c494e4b00000100020000000000c1c1\
    c1c1c1c1c1c1c1c1c1c1c1c1c1c1610000000000000007000000000000006161616161616161616161616161616101010101\
    01010101010101010101010105616c7068610000000000000000000000000000000000000000000000000000000000000000\
    00000000000000000000000000000000000000000000000000006d6f7265";
const LATER_CALLED_HELLO: &str = "\
    466201009400000000000000000000000000000000000000819a174cea68d48a46424c494e4b00000100020000000000c1c1\
    c1c1c1c1c1c1c1c1c1c1c1c1c1c1620000000000000064000000000000006262626262626262626262626262626201010101\
    0101010101010101010101010462657461000000000000000000000000000000000000000000000000000000000000000000\
    00000000000000000000000000000000000000000000000000006d6f7265";
const START: &str = "\
    466203000800000000000000000000000000000000000000adcf14c58807b7540100000000000000";
const BEACON: &str = "\
    466204005000000000000000000000000100000000000000df5aef57672213895a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a0300\
    0000010000006100000000000000070000000000000000000000620000000000000007000000000000000000000005000000\
    000000000900000000000000";
const GRANTED: &str = "\
    46620400500000000000000000000000010000000000000011e671b7c19fb72d5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a0300\
    0000010000006200000000000000070000000000000000000000610000000000000007000000000000000000000006000000\
    000000000900000000000000";
const ACKNOWLEDGE: &str = "\
    4662050010000000000000000000000000000000000000001e0c304280ad4a3301000000000000009800000000000000";
const FORWARD_HELLO: &str = "\
    46620100a000000000000000000000000000000000000000d89c48d394d940b046424c494e4b000001000100ffff0000c1c1\
    c1c1c1c1c1c1c1c1c1c1c1c1c1c1610000000000000001000000000000006161616161616161616161616161616101010101\
    01010101010101010101010105616c7068610000000000000000000000000000000000000000000000000000000000000000\
    00000000000000000000000000000000000000000000000000005a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a";
const OWNER_HELLO: &str = "\
    46620100a0000000000000000000000000000000000000006dba674555d1c86646424c494e4b000001000100ffff0000c1c1\
    c1c1c1c1c1c1c1c1c1c1c1c1c1c1620000000000000002000000000000006262626262626262626262626262626201010101\
    0101010101010101010101010462657461000000000000000000000000000000000000000000000000000000000000000000\
    00000000000000000000000000000000000000000000000000005a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a";
const LATER_FORWARD_HELLO: &str = "\
    46620100a4000000000000000000000000000000000000000b63f748910e37e646424c494e4b000001000200ffff0000c1c1\
    c1c1c1c1c1c1c1c1c1c1c1c1c1c1610000000000000001000000000000006161616161616161616161616161616101010101\
    01010101010101010101010105616c7068610000000000000000000000000000000000000000000000000000000000000000\
    00000000000000000000000000000000000000000000000000005a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a6d6f7265";
const LATER_OWNER_HELLO: &str = "\
    46620100a400000000000000000000000000000000000000ca6b7f9e3633806946424c494e4b000001000200ffff0000c1c1\
    c1c1c1c1c1c1c1c1c1c1c1c1c1c1620000000000000002000000000000006262626262626262626262626262626201010101\
    0101010101010101010101010462657461000000000000000000000000000000000000000000000000000000000000000000\
    00000000000000000000000000000000000000000000000000005a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a6d6f7265";
const ENTERED: &str = "\
    466208001800000000000000000000000000000000000000713de982a8e2afd1090000000000000000000040000000000000\
    000200000000";
const REFUSAL: &str = "\
    466202000800000000000000000000000000000000000000adcf14c5878319790100000000000000";
const STRANGE_HELLO: &str = "\
    4662010090000000000000000000000000000000000000001f1f74a918f6f43346424c494e4b00000200030000000000c1c1\
    c1c1c1c1c1c1c1c1c1c1c1c1c1c1610000000000000007000000000000006161616161616161616161616161616101010101\
    01010101010101010101010105616c7068610000000000000000000000000000000000000000000000000000000000000000\
    0000000000000000000000000000000000000000000000000000";

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap()).collect()
}

/// The other node, in this test's hands.
struct Other {
    stream: TcpStream,
    heard: Vec<u8>,
}

impl Other {
    fn new(stream: TcpStream) -> Other {
        stream.set_nonblocking(true).unwrap();
        Other { stream, heard: Vec::new() }
    }

    fn says(&mut self, frames: &[&str]) {
        let words: Vec<u8> = frames.iter().flat_map(|frame| bytes(frame)).collect();
        self.stream.write_all(&words).unwrap();
    }

    /// The next frame that is no ping: those come by the clock.
    fn frame(&mut self) -> Option<Vec<u8>> {
        let mut piece = [0; 4096];
        // Nothing there yet, or nothing more to come.
        let read = self.stream.read(&mut piece).unwrap_or(0);
        self.heard.extend_from_slice(&piece[..read]);
        let body = u32::from_le_bytes(self.heard.get(4..8)?.try_into().unwrap()) as usize;
        if self.heard.len() < HEAD_BYTES + body {
            return None;
        }
        let frame: Vec<u8> = self.heard.drain(..HEAD_BYTES + body).collect();
        let head = FrameHead::decode(frame.first_chunk().unwrap()).unwrap();
        Some(frame).filter(|_| head.kind != FrameKind::Ping)
    }

    fn hears(&mut self, stand: &mut Stand, frames: &[&str]) {
        for expected in frames {
            let mut frame = None;
            let deadline = clock::now() + PATIENCE;
            while frame.is_none() {
                assert!(clock::now() < deadline, "it is silent where {expected} was to come");
                stand.round();
                frame = self.frame();
            }
            assert_eq!(frame, Some(bytes(expected)), "not {expected}");
        }
    }
}

#[test]
fn who_is_called_answers_as_its_version_always_has() {
    for caller in [CALLER_HELLO, LATER_CALLER_HELLO] {
        let mut stand = Setting::plain(ModeChoice::Auto, 1).build();
        stand.alpha.link.slots.clear();
        let door = stand.door.address().unwrap().port();
        let mut other = Other::new(TcpStream::connect(("127.0.0.1", door)).unwrap());
        other.says(&[caller]);
        other.hears(&mut stand, &[CALLED_HELLO, START]);
        other.says(&[START, BEACON]);
        other.hears(&mut stand, &[ACKNOWLEDGE]);
        assert_eq!(stand.beta.sink.control, [Message::Beacon { sent: Instant(9) }]);
        stand.beta.link.send(&from_beta(), &Message::Granted { sent: Instant(9) }, Buffers::none(), None).unwrap();
        other.hears(&mut stand, &[GRANTED]);
    }
}

#[test]
fn who_calls_says_what_its_version_always_has() {
    for called in [CALLED_HELLO, LATER_CALLED_HELLO] {
        let mut stand = Setting::plain(ModeChoice::Auto, 1).build();
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let pair = AddressPair { own: IpAddr::from([127, 0, 0, 1]), peer: listener.local_addr().unwrap() };
        let identity = Arc::new(identity("alpha", 7));
        let config = LinkConfig { identity, pairs: vec![pair], ..stand.alpha.link.config.clone() };
        stand.alpha.link = Link::new(config, clock::now());
        let mut arrived = None;
        while arrived.is_none() {
            stand.round();
            arrived = listener.accept().ok();
        }
        let mut other = Other::new(arrived.unwrap().0);
        other.hears(&mut stand, &[CALLER_HELLO]);
        other.says(&[called, START]);
        other.hears(&mut stand, &[START]);
        stand.until("up", |stand| stand.alpha.is_up(1));
        stand.alpha.link.send(&from_alpha(), &Message::Beacon { sent: Instant(9) }, Buffers::none(), None).unwrap();
        other.hears(&mut stand, &[BEACON]);
        other.says(&[ACKNOWLEDGE, GRANTED]);
        stand.until("the answer", |stand| stand.alpha.sink.control == [Message::Granted { sent: Instant(9) }]);
        assert!(stand.alpha.is_up(1));
    }
}

#[test]
fn who_speaks_no_version_of_ours_is_told_so_in_words_of_every_version() {
    let mut stand = Setting::plain(ModeChoice::Auto, 1).build();
    stand.alpha.link.slots.clear();
    let door = stand.door.address().unwrap().port();
    let mut other = Other::new(TcpStream::connect(("127.0.0.1", door)).unwrap());
    other.says(&[STRANGE_HELLO]);
    other.hears(&mut stand, &[REFUSAL]);
}

const OWNED: Entered = Entered { term: Term(9), size_bytes: 1 << 30, request_bytes_max: 32 << 20 };

#[test]
fn who_forwards_says_what_its_version_always_has() {
    for owner in [OWNER_HELLO, LATER_OWNER_HELLO] {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let pair = AddressPair { own: IpAddr::from([127, 0, 0, 1]), peer: listener.local_addr().unwrap() };
        let calling = std::thread::spawn(move || {
            let owner = (&name("beta"), NodeId(u64::from(b'b')));
            call_owner(&identity("alpha", 1), &Security::Plain, owner, &pair, VOLUME)
        });
        let (mut stream, _) = listener.accept().unwrap();
        let mut heard = bytes(FORWARD_HELLO);
        heard.fill(0);
        stream.read_exact(&mut heard).unwrap();
        assert_eq!(heard, bytes(FORWARD_HELLO));
        stream.write_all(&[bytes(owner), bytes(ENTERED)].concat()).unwrap();
        let (_, entered) = calling.join().unwrap().expect("it is let in");
        assert_eq!(entered, OWNED);
    }
}

#[test]
fn an_owner_lets_in_as_its_version_always_has() {
    for forwards in [FORWARD_HELLO, LATER_FORWARD_HELLO] {
        let mut reactor = Reactor::new(ModeChoice::Threads).unwrap();
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let own = identity("beta", 2);
        let mut door = Door::new(&mut reactor, listener, Arc::new(own.clone()), Security::Plain, DOOR).unwrap();
        stream.write_all(&bytes(forwards)).unwrap();
        let arrival = arrival(&mut door, &mut reactor).expect("it is let in");
        assert_eq!(arrival.volume(), Some(VOLUME));
        let _far = arrival.enter(&own, OWNED).unwrap();
        let expected = [bytes(OWNER_HELLO), bytes(ENTERED)].concat();
        let mut heard = vec![0; expected.len()];
        stream.read_exact(&mut heard).unwrap();
        assert_eq!(heard, expected);
    }
}
