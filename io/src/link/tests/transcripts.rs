//! Transcripts: what two nodes say to each other at the beginning of a channel and of a connection that forwards, byte by byte,
//! with a node of this version in the place of either and one of each version that there was, of this one or of a later one in the other.
//! What the other offers changes nothing of what follows, because both use the newest version that both speak. A new version
//! changes one number in its own hello, and nothing else here.
//!
//! The bytes were computed by a second implementation of `docs/protocol.md`, "Bytes on a link", not by the code under test.
//! Those of the first version never change: there will always be a node that speaks it.

use super::forward::arrival;
use super::*;
use std::io::Read;
use std::net::{TcpListener, TcpStream};

const FIRST_CALLER_HELLO: &str = "\
    46620100900000000000000000000000000000000000000093a8e310be93cff646424c494e4b00000100010000000000c1c1\
    c1c1c1c1c1c1c1c1c1c1c1c1c1c1610000000000000007000000000000006161616161616161616161616161616101010101\
    01010101010101010101010105616c7068610000000000000000000000000000000000000000000000000000000000000000\
    0000000000000000000000000000000000000000000000000000";
const SECOND_CALLER_HELLO: &str = "\
    46620100900000000000000000000000000000000000000048373c06e7e9782f46424c494e4b00000100020000000000c1c1\
    c1c1c1c1c1c1c1c1c1c1c1c1c1c1610000000000000007000000000000006161616161616161616161616161616101010101\
    01010101010101010101010105616c7068610000000000000000000000000000000000000000000000000000000000000000\
    0000000000000000000000000000000000000000000000000000";
const CALLER_HELLO: &str = "\
    466201009000000000000000000000000000000000000000ae6f2df7d03fea6746424c494e4b00000100030000000000c1c1\
    c1c1c1c1c1c1c1c1c1c1c1c1c1c1610000000000000007000000000000006161616161616161616161616161616101010101\
    01010101010101010101010105616c7068610000000000000000000000000000000000000000000000000000000000000000\
    0000000000000000000000000000000000000000000000000000";
const FIRST_CALLED_HELLO: &str = "\
    466201009000000000000000000000000000000000000000aa779defb63a317546424c494e4b00000100010000000000c1c1\
    c1c1c1c1c1c1c1c1c1c1c1c1c1c1620000000000000064000000000000006262626262626262626262626262626201010101\
    0101010101010101010101010462657461000000000000000000000000000000000000000000000000000000000000000000\
    0000000000000000000000000000000000000000000000000000";
const SECOND_CALLED_HELLO: &str = "\
    46620100900000000000000000000000000000000000000071e842f9ef4086ac46424c494e4b00000100020000000000c1c1\
    c1c1c1c1c1c1c1c1c1c1c1c1c1c1620000000000000064000000000000006262626262626262626262626262626201010101\
    0101010101010101010101010462657461000000000000000000000000000000000000000000000000000000000000000000\
    0000000000000000000000000000000000000000000000000000";
const CALLED_HELLO: &str = "\
    46620100900000000000000000000000000000000000000097b05308d89614e446424c494e4b00000100030000000000c1c1\
    c1c1c1c1c1c1c1c1c1c1c1c1c1c1620000000000000064000000000000006262626262626262626262626262626201010101\
    0101010101010101010101010462657461000000000000000000000000000000000000000000000000000000000000000000\
    0000000000000000000000000000000000000000000000000000";
const LATER_CALLER_HELLO: &str = "\
    466201009400000000000000000000000000000000000000e5543ddd7d42ce8d46424c494e4b00000100ffff00000000c1c1\
    c1c1c1c1c1c1c1c1c1c1c1c1c1c1610000000000000007000000000000006161616161616161616161616161616101010101\
    01010101010101010101010105616c7068610000000000000000000000000000000000000000000000000000000000000000\
    00000000000000000000000000000000000000000000000000006d6f7265";
const LATER_CALLED_HELLO: &str = "\
    466201009400000000000000000000000000000000000000edfdc35e0f751ead46424c494e4b00000100ffff00000000c1c1\
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
const FIRST_FORWARD_HELLO: &str = "\
    46620100a000000000000000000000000000000000000000d89c48d394d940b046424c494e4b000001000100ffff0000c1c1\
    c1c1c1c1c1c1c1c1c1c1c1c1c1c1610000000000000001000000000000006161616161616161616161616161616101010101\
    01010101010101010101010105616c7068610000000000000000000000000000000000000000000000000000000000000000\
    00000000000000000000000000000000000000000000000000005a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a";
const SECOND_FORWARD_HELLO: &str = "\
    46620100a00000000000000000000000000000000000000099fc41df19c3772346424c494e4b000001000200ffff0000c1c1\
    c1c1c1c1c1c1c1c1c1c1c1c1c1c1610000000000000001000000000000006161616161616161616161616161616101010101\
    01010101010101010101010105616c7068610000000000000000000000000000000000000000000000000000000000000000\
    00000000000000000000000000000000000000000000000000005a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a";
const FORWARD_HELLO: &str = "\
    46620100a000000000000000000000000000000000000000a6dc46dbcd18c1ae46424c494e4b000001000300ffff0000c1c1\
    c1c1c1c1c1c1c1c1c1c1c1c1c1c1610000000000000001000000000000006161616161616161616161616161616101010101\
    01010101010101010101010105616c7068610000000000000000000000000000000000000000000000000000000000000000\
    00000000000000000000000000000000000000000000000000005a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a";
const FIRST_OWNER_HELLO: &str = "\
    46620100a0000000000000000000000000000000000000006dba674555d1c86646424c494e4b000001000100ffff0000c1c1\
    c1c1c1c1c1c1c1c1c1c1c1c1c1c1620000000000000002000000000000006262626262626262626262626262626201010101\
    0101010101010101010101010462657461000000000000000000000000000000000000000000000000000000000000000000\
    00000000000000000000000000000000000000000000000000005a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a";
const SECOND_OWNER_HELLO: &str = "\
    46620100a0000000000000000000000000000000000000002cda6e49d8cbfff546424c494e4b000001000200ffff0000c1c1\
    c1c1c1c1c1c1c1c1c1c1c1c1c1c1620000000000000002000000000000006262626262626262626262626262626201010101\
    0101010101010101010101010462657461000000000000000000000000000000000000000000000000000000000000000000\
    00000000000000000000000000000000000000000000000000005a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a";
const OWNER_HELLO: &str = "\
    46620100a00000000000000000000000000000000000000013fa694d0c10497846424c494e4b000001000300ffff0000c1c1\
    c1c1c1c1c1c1c1c1c1c1c1c1c1c1620000000000000002000000000000006262626262626262626262626262626201010101\
    0101010101010101010101010462657461000000000000000000000000000000000000000000000000000000000000000000\
    00000000000000000000000000000000000000000000000000005a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a";
const LATER_FORWARD_HELLO: &str = "\
    46620100a4000000000000000000000000000000000000002cb7c6ac2b396afd46424c494e4b00000100ffffffff0000c1c1\
    c1c1c1c1c1c1c1c1c1c1c1c1c1c1610000000000000001000000000000006161616161616161616161616161616101010101\
    01010101010101010101010105616c7068610000000000000000000000000000000000000000000000000000000000000000\
    00000000000000000000000000000000000000000000000000005a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a6d6f7265";
const LATER_OWNER_HELLO: &str = "\
    46620100a400000000000000000000000000000000000000edbf4e7a8c04dd7246424c494e4b00000100ffffffff0000c1c1\
    c1c1c1c1c1c1c1c1c1c1c1c1c1c1620000000000000002000000000000006262626262626262626262626262626201010101\
    0101010101010101010101010462657461000000000000000000000000000000000000000000000000000000000000000000\
    00000000000000000000000000000000000000000000000000005a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a6d6f7265";
const ENTERED: &str = "\
    466208001800000000000000000000000000000000000000713de982a8e2afd1090000000000000000000040000000000000\
    000200000000";
const REFUSAL: &str = "\
    466202000800000000000000000000000000000000000000adcf14c5878319790100000000000000";
const STRANGE_HELLO: &str = "\
    466201009000000000000000000000000000000000000000f6cafb856bb0ed4046424c494e4b0000feffffff00000000c1c1\
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
fn who_is_called_answers_neighbours_of_every_version() {
    for caller in [FIRST_CALLER_HELLO, SECOND_CALLER_HELLO, CALLER_HELLO, LATER_CALLER_HELLO] {
        let mut stand = Setting::plain(ModeChoice::Auto, 1).build();
        stand.alpha.link.slots.clear();
        let door = stand.door.address().unwrap().port();
        let mut other = Other::new(TcpStream::connect(("127.0.0.1", door)).unwrap());
        other.says(&[caller]);
        other.hears(&mut stand, &[CALLED_HELLO, START]);
        other.says(&[START, BEACON]);
        other.hears(&mut stand, &[ACKNOWLEDGE]);
        assert_eq!(stand.beta.sink.control, [Message::Ownership(OwnershipMessage::Beacon { sent: Instant(9) })]);
        stand
            .beta
            .link
            .send(
                &from_beta(),
                &Message::Ownership(OwnershipMessage::Granted { sent: Instant(9) }),
                Buffers::none(),
                None,
            )
            .unwrap();
        other.hears(&mut stand, &[GRANTED]);
    }
}

#[test]
fn who_calls_is_understood_by_neighbours_of_every_version() {
    for called in [FIRST_CALLED_HELLO, SECOND_CALLED_HELLO, CALLED_HELLO, LATER_CALLED_HELLO] {
        let mut stand = Setting::plain(ModeChoice::Auto, 1).build();
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let pair = AddressPair { own: IpAddr::from([127, 0, 0, 1]), peer: listener.local_addr().unwrap() };
        let identity = Arc::new(identity("alpha", 7));
        let config = LinkConfig { identity, pairs: vec![pair], ..stand.alpha.link.config.clone() };
        stand.alpha.link = Link::new(config, clock::now()).expect("two nodes");
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
        stand
            .alpha
            .link
            .send(
                &from_alpha(),
                &Message::Ownership(OwnershipMessage::Beacon { sent: Instant(9) }),
                Buffers::none(),
                None,
            )
            .unwrap();
        other.hears(&mut stand, &[BEACON]);
        other.says(&[ACKNOWLEDGE, GRANTED]);
        stand.until("the answer", |stand| {
            stand.alpha.sink.control == [Message::Ownership(OwnershipMessage::Granted { sent: Instant(9) })]
        });
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
fn who_forwards_is_let_in_by_owners_of_every_version() {
    for owner in [FIRST_OWNER_HELLO, SECOND_OWNER_HELLO, OWNER_HELLO, LATER_OWNER_HELLO] {
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
fn an_owner_lets_in_who_forwards_by_every_version() {
    for forwards in [FIRST_FORWARD_HELLO, SECOND_FORWARD_HELLO, FORWARD_HELLO, LATER_FORWARD_HELLO] {
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
