//! Whoever has no business here is sent away with a reason, counted, and costs nobody else anything.

use super::*;
use crate::certificate::BEGINS_BEFORE;
use forebay_core::message::{Held, Room};
use forebay_core::roles::Role;
use rcgen::{SanType, date_time_ymd};
use std::collections::{BTreeMap, VecDeque};
use std::io::{Read, Write};
use std::net::TcpStream;

const GREETING_MAX_TWICE: Duration = Duration(2 * GREETING_MAX.0);

fn hello() -> Hello {
    identity("alpha", 7).hello(0, 0)
}

fn bytes(frame: &ChannelFrame) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    bytes
}

impl Stand {
    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.door.address().unwrap().port())).unwrap();
        stream.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
        stream
    }

    /// Says these bytes to the door and goes on until it has turned them away.
    fn turned_away(&mut self, words: &[u8]) -> (Failure, TcpStream) {
        let before = self.turned_away.len();
        let mut stream = self.connect();
        // The door may hang up before it has taken everything.
        let _ = stream.write_all(words);
        self.until("turned away", |stand| stand.turned_away.len() > before);
        (self.turned_away.last().unwrap().why.clone(), stream)
    }

    /// Nobody calls on behalf of alpha.
    fn quiet(mode: ModeChoice, security: Security) -> Stand {
        let mut stand = Setting { beta: security, ..Setting::plain(mode, 1) }.build();
        stand.alpha.link.slots.clear();
        stand
    }

    /// A peer in this test's own hands, let in as alpha.
    fn impostor(&mut self) -> TcpStream {
        let mut stream = self.connect();
        stream.write_all(&bytes(&ChannelFrame::Hello(hello()))).unwrap();
        self.until("in", |stand| stand.beta.is_up(1));
        stream
    }

    fn down(&self) -> Option<Failure> {
        self.beta.events.iter().rev().find_map(|event| match event {
            LinkEvent::Down { why, .. } => Some(why.clone()),
            LinkEvent::Up { .. } | LinkEvent::Left { .. } | LinkEvent::Interrupted => None,
        })
    }
}

fn refusal_in(stream: &mut TcpStream) -> Option<Rejection> {
    let mut all = Vec::new();
    // A connection that is reset has told what it had to tell.
    let _ = stream.read_to_end(&mut all);
    let (head, body) = all[all.len().checked_sub(40)?..].split_first_chunk()?;
    match ChannelFrame::decode(FrameHead::decode(head).ok()?.kind, body) {
        Ok(ChannelFrame::Refusal(why)) => Some(why),
        Ok(_) | Err(_) => None,
    }
}

#[test]
fn hellos_that_do_not_fit_are_refused_with_the_reason() {
    let mut stand = Stand::quiet(ModeChoice::Auto, Security::Plain);
    let hello = hello();
    for (wrong, why) in [
        (Hello { cluster: [9; 16], ..hello.clone() }, Rejection::OtherCluster),
        (Hello { wire_min: 4, wire_max: 5, ..hello.clone() }, Rejection::NoCommonVersion),
        (Hello { name: name("gamma"), ..hello.clone() }, Rejection::UnknownNode),
        (Hello { name: name("beta"), ..hello.clone() }, Rejection::UnknownNode),
        (Hello { node: NodeId(u64::from(b'g')), ..hello.clone() }, Rejection::UnknownNode),
        (Hello { lane: 3, ..hello.clone() }, Rejection::UnknownNode),
        (Hello { channel: CHANNELS_MAX as u16, ..hello.clone() }, Rejection::Malformed),
    ] {
        let (found, mut stream) = stand.turned_away(&bytes(&ChannelFrame::Hello(wrong)));
        assert_eq!(found, Failure::Refused(why));
        assert_eq!(refusal_in(&mut stream), Some(why), "the other side is told");
    }
    assert!(!stand.beta.link.is_up());
    let later = Hello { wire_max: 4, ..hello };
    let mut stream = stand.connect();
    stream.write_all(&bytes(&ChannelFrame::Hello(later))).unwrap();
    stand.until("a neighbouring version is let in", |stand| stand.beta.is_up(1));
}

#[test]
fn who_pings_and_takes_no_answer_is_sent_away() {
    let mut stand = Stand::quiet(ModeChoice::Auto, Security::Plain);
    let mut stream = stand.impostor();
    stream.write_all(&bytes(&ChannelFrame::Ping { sent: Instant(1) }).repeat(64)).unwrap();
    stand.until("down", |stand| stand.down().is_some());
    assert_eq!(stand.down(), Some(Failure::Malformed("ping: too many before the answer to the first")));
}

#[test]
fn a_neighbour_of_an_older_version_is_sent_nothing_that_it_does_not_know() {
    let ask = Message::Log(LogMessage::Ask { number: 1, first: BlockIndex(0), blocks: 1 });
    for (wire_max, expected) in [(1, Err(NotSent::OlderVersion)), (2, Ok(())), (3, Ok(()))] {
        let mut stand = Stand::quiet(ModeChoice::Auto, Security::Plain);
        let mut stream = stand.connect();
        stream.write_all(&bytes(&ChannelFrame::Hello(Hello { wire_max, ..hello() }))).unwrap();
        stand.until("in", |stand| stand.beta.is_up(1));
        let link = &mut stand.beta.link;
        assert_eq!(link.send(&from_beta(), &ask, Buffers::none(), None), expected, "version {wire_max}");
        assert_eq!(
            link.send(&from_beta(), &Message::Ownership(OwnershipMessage::Seal), Buffers::none(), None),
            Ok(()),
            "version {wire_max}"
        );
    }
}

#[test]
fn what_is_no_hello_is_sent_away() {
    for mode in MODES {
        let mut stand = Stand::quiet(mode, Security::Plain);
        let mut damaged = bytes(&ChannelFrame::Hello(hello()));
        damaged[100] ^= 1;
        let mut endless = bytes(&ChannelFrame::Hello(hello()));
        endless[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        for words in [&[0; 64][..], b"GET / HTTP/1.1\r\n\r\n0123456789012345", &damaged, &endless] {
            let (why, mut stream) = stand.turned_away(words);
            assert!(matches!(why, Failure::Malformed(_)), "{why}");
            assert_eq!(refusal_in(&mut stream), Some(Rejection::Malformed));
        }
        let (why, _) = stand.turned_away(&bytes(&ChannelFrame::Ping { sent: Instant(1) }));
        assert!(matches!(why, Failure::Malformed(_)), "{why}");
        let (why, _) = stand.turned_away(&[&[22, 3, 1, 2, 0, 1][..], &[0; 40]].concat());
        assert_eq!(why, Failure::NotPlain);
        let before = stand.turned_away.len();
        drop(stand.connect());
        stand.until("hung up", |stand| stand.turned_away.len() > before);
        assert_eq!(stand.turned_away.last().unwrap().why, Failure::HungUp);
    }
}

#[test]
fn who_says_nothing_is_sent_away_in_time_and_a_crowd_keeps_nobody_out() {
    let mut stand = Setting::plain(ModeChoice::Auto, 1).build();
    let since = clock::now();
    let silent: Vec<TcpStream> = (0..VISITORS_MAX + 20).map(|_| stand.connect()).collect();
    stand.until_up(1);
    stand.until("all gone", |stand| stand.turned_away.len() == silent.len());
    let waited = clock::now() - since;
    assert!((GREETING_MAX..GREETING_MAX_TWICE).contains(&waited), "{waited:?}");
    let crowded = stand.turned_away.iter().filter(|away| away.why == Failure::Crowded).count();
    assert!((20..=22).contains(&crowded), "{crowded}");
    assert!(stand.alpha.is_up(1));
}

/// From the node's own network, some thousand a second that begin a handshake and do not go on.
#[test]
fn a_flood_from_its_own_network_keeps_a_node_not_out() {
    let authority = Authority::new();
    let (alpha, beta) = (authority.issue("alpha", None), authority.issue("beta", None));
    let mut stand = Setting { alpha, beta, ..Setting::plain(ModeChoice::Auto, 1) }.build();
    let mut flood = VecDeque::new();
    stand.until("up", |stand| {
        for _ in 0..16 {
            let mut stream = stand.connect();
            stream.write_all(&[22, 3, 1]).unwrap();
            flood.push_back(stream);
        }
        flood.drain(..flood.len().saturating_sub(VISITORS_MAX));
        stand.alpha.is_up(1) && stand.beta.is_up(1)
    });
}

/// That the two find no way to each other, and that one of them says this about it.
fn expect_refusal(alpha: Security, beta: Security, ours: &dyn Fn(&Failure) -> bool) {
    let mut stand = Setting { alpha, beta, ..Setting::plain(ModeChoice::Auto, 1) }.build();
    stand.until("refused", |stand| !stand.turned_away.is_empty() || !stand.alpha.events.is_empty());
    stand.go_on_for(Duration::from_millis(200));
    assert!(!stand.alpha.link.is_up() && !stand.beta.link.is_up());
    let told = stand.turned_away.iter().map(|away| away.why.clone());
    let downs = stand.alpha.events.iter().map(|event| match event {
        LinkEvent::Down { why, .. } => why.clone(),
        LinkEvent::Up { .. } | LinkEvent::Left { .. } | LinkEvent::Interrupted => panic!("let in"),
    });
    let all: Vec<Failure> = told.chain(downs).collect();
    assert!(all.iter().any(ours), "{all:?}");
}

/// Names and roles that a certificate carries besides.
fn saying(uris: &[&str]) -> impl FnOnce(&mut CertificateParams) {
    move |params| params.subject_alt_names.extend(uris.iter().map(|uri| SanType::URI((*uri).try_into().unwrap())))
}

#[test]
fn only_a_node_is_let_in_or_called_whatever_else_the_authority_has_signed() {
    let cluster = Authority::new();
    let node = |name: &str| cluster.issue_with(name, saying(&[&Role::Node.uri()]));
    let tls = |why: &Failure| matches!(why, Failure::Tls(_));
    for role in Role::ALL {
        let uri = role.uri();
        let issued = |name: &str| cluster.issue_with(name, saying(&[&uri]));
        if role == Role::Node {
            // With one like it, and with one from before there were roles, both ways.
            for (alpha, beta) in [
                (issued("alpha"), node("beta")),
                (issued("alpha"), cluster.issue("beta", None)),
                (cluster.issue("alpha", None), issued("beta")),
            ] {
                Setting { alpha, beta, ..Setting::plain(ModeChoice::Auto, 1) }.build().until_up(1);
            }
        } else {
            expect_refusal(issued("alpha"), node("beta"), &tls);
            expect_refusal(node("alpha"), issued("beta"), &tls);
        }
    }
    for uris in [&["forebay:role:node", "forebay:role:nbd-client"][..], &["forebay:role:root"], &["forebay:node"]] {
        expect_refusal(cluster.issue_with("alpha", saying(uris)), node("beta"), &tls);
        expect_refusal(node("alpha"), cluster.issue_with("beta", saying(uris)), &tls);
    }
    let expired = |params: &mut CertificateParams| {
        saying(&["forebay:role:node"])(params);
        (params.not_before, params.not_after) = (date_time_ymd(2001, 1, 1), date_time_ymd(2002, 1, 1));
    };
    expect_refusal(cluster.issue_with("alpha", expired), node("beta"), &tls);
    expect_refusal(node("alpha"), cluster.issue_with("beta", expired), &tls);
    // A pattern names no node; a thousand names are nobody's.
    let not_its = |why: &Failure| *why == Failure::Refused(Rejection::NotItsCertificate);
    expect_refusal(cluster.issue_with("*.lab", saying(&["forebay:role:node"])), node("beta"), &not_its);
    let many = |params: &mut CertificateParams| {
        let names = (0..1000).map(|n| SanType::DnsName(format!("n{n}").try_into().unwrap()));
        params.subject_alt_names.extend(names);
    };
    expect_refusal(cluster.issue_with("alpha", many), node("beta"), &tls);
}

/// Of one name, everything that was made up to now.
fn revoke(revoked: &Revoked, name: &str) {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    revoked.set(BTreeMap::from([(name.to_owned(), now)]));
}

/// Made a year ago, or a day from now, as far as its certificate tells.
fn made(long_ago: bool) -> impl FnOnce(&mut CertificateParams) {
    move |params| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let begin = if long_ago { now - BEGINS_BEFORE * 365 } else { now };
        params.not_before = date_time_ymd(1970, 1, 1) + begin;
    }
}

#[test]
fn who_is_revoked_is_neither_let_in_nor_called_and_both_ends_say_so() {
    let cluster = Authority::new();
    for refuses in ["alpha", "beta"] {
        for is_ours in [true, false] {
            let revoked = Arc::default();
            revoke(&revoked, if refuses == "alpha" { "beta" } else { "alpha" });
            let of = |name: &str| match name == refuses {
                true => cluster.issue_but(name, made(true), &revoked),
                false => cluster.issue_with(name, made(true)),
            };
            let why = if is_ours { Failure::Revoked } else { Failure::RevokedByPeer };
            expect_refusal(of("alpha"), of("beta"), &|said| *said == why);
        }
    }
}

#[test]
fn who_is_revoked_later_goes_at_once_and_comes_back_with_a_new_identity() {
    let (cluster, revoked) = (Authority::new(), Arc::<Revoked>::default());
    let (alpha, beta) = (cluster.issue_with("alpha", made(true)), cluster.issue_but("beta", made(true), &revoked));
    let mut stand = Setting { alpha, beta, ..Setting::plain(ModeChoice::Auto, 2) }.build();
    stand.until_up(2);
    let know = |stand: &mut Stand, name: &str| {
        revoke(&revoked, name);
        revoke(&stand.beta.link.config.identity.revoked, name);
        stand.beta.link.end_revoked(&mut stand.reactor, &mut stand.beta.sink, clock::now());
    };
    know(&mut stand, "gamma");
    stand.go_on_for(Duration::from_millis(100));
    assert!(stand.alpha.is_up(2) && stand.beta.is_up(2), "another node is");
    know(&mut stand, "alpha");
    assert!(!stand.beta.link.is_up(), "at once");
    stand.until("told", |stand| {
        let told = |why: &Failure| *why == Failure::RevokedByPeer;
        stand.alpha.events.iter().any(|event| matches!(event, LinkEvent::Down { why, .. } if told(why)))
    });
    stand.go_on_for(Duration::from_millis(500));
    assert!(!stand.alpha.link.is_up() && !stand.beta.link.is_up());
    let mut config = stand.alpha.link.config.clone();
    config.security = cluster.issue_with("alpha", made(false));
    stand.alpha.link = Link::new(config, clock::now()).expect("two nodes");
    stand.until_up(2);
}

/// TLS had no objection yet.
#[test]
fn who_is_revoked_between_two_steps_is_stopped_by_the_next() {
    let cluster = Authority::new();
    let refused = |revoked: &dyn Fn(&Stand) -> Arc<Revoked>, name: &str| {
        let of = |name| cluster.issue_with(name, made(true));
        let mut stand = Setting { alpha: of("alpha"), beta: of("beta"), ..Setting::plain(ModeChoice::Auto, 1) }.build();
        revoke(&revoked(&stand), name);
        stand.until("refused", |stand| {
            let down = LinkEvent::Down { channel: 0, why: Failure::Revoked };
            stand.turned_away.iter().any(|away| away.why == Failure::Revoked) || stand.alpha.events.contains(&down)
        });
        stand.go_on_for(Duration::from_millis(100));
        assert!(!stand.alpha.link.is_up() && !stand.beta.link.is_up(), "{name}");
    };
    // With the hello of who calls, when its channel is taken over, and with the hello of who is called.
    refused(&|stand| stand.door.identity().revoked.clone(), "alpha");
    refused(&|stand| stand.beta.link.config.identity.revoked.clone(), "alpha");
    refused(&|stand| stand.alpha.link.config.identity.revoked.clone(), "beta");
}

#[test]
fn who_is_no_node_does_not_try() {
    let cluster = Authority::new();
    for role in Role::ALL {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["alpha".to_string()]).unwrap();
        saying(&[&role.uri()])(&mut params);
        let certificate = params.signed_by(&key, &cluster.issuer).unwrap().der().clone();
        let private = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let made = PeerTls::new(vec![certificate], private, rustls::RootCertStore::empty(), &Arc::default()).err();
        let said = made.map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(said.contains(role.word()), role != Role::Node, "{role:?}: {said}");
    }
}

#[test]
fn certificates_decide_who_is_let_in() {
    let (cluster, strangers) = (Authority::new(), Authority::new());
    let beta = || cluster.issue("beta", None);
    let expect = expect_refusal;
    let tls = |why: &Failure| matches!(why, Failure::Tls(_));
    expect(strangers.issue("alpha", Some(&cluster)), beta(), &tls);
    expect(cluster.issue("alpha", Some(&strangers)), beta(), &tls);
    expect(cluster.issue("gamma", None), beta(), &|why| *why == Failure::Refused(Rejection::NotItsCertificate));
    // Whoever answers must be who was called.
    expect(cluster.issue("alpha", None), cluster.issue("gamma", None), &tls);
    expect(Security::Plain, beta(), &|why| *why == Failure::NotTls);
    expect(cluster.issue("alpha", None), Security::Plain, &|why| *why == Failure::NotPlain);
}

#[test]
fn who_answers_under_another_name_is_not_taken() {
    let mut stand = Setting::plain(ModeChoice::Auto, 1).build();
    stand.door.identity_changes(Arc::new(identity("gamma", 1)));
    let mut config = stand.beta.link.config.clone();
    config.identity = Arc::new(identity("gamma", 1));
    stand.beta.link = Link::new(config, clock::now()).expect("two nodes");
    let why = Failure::Refused(Rejection::NotWhoWasCalled);
    stand.until("refused", |stand| stand.alpha.events.contains(&LinkEvent::Down { channel: 0, why: why.clone() }));
    assert!(!stand.alpha.link.is_up());
}

#[test]
fn who_answers_with_another_number_is_not_taken() {
    let mut stand = Setting::plain(ModeChoice::Auto, 1).build();
    stand.alpha.link.config.peer_node = Some(NodeId(77));
    let why = Failure::Refused(Rejection::NotWhoWasCalled);
    stand.until("refused", |stand| stand.alpha.events.contains(&LinkEvent::Down { channel: 0, why: why.clone() }));
    assert!(!stand.alpha.link.is_up());
}

#[test]
fn two_machines_with_one_name_do_not_push_each_other_out() {
    let mut stand = Setting::plain(ModeChoice::Auto, 1).build();
    stand.until_up(1);
    let mut second = hello();
    second.host.machine = [0xee; 16];
    let (why, mut stream) = stand.turned_away(&bytes(&ChannelFrame::Hello(second)));
    assert_eq!(why, Failure::Refused(Rejection::TwoOfOneName));
    assert_eq!(refusal_in(&mut stream), Some(Rejection::TwoOfOneName));
    assert!(stand.alpha.is_up(1) && stand.beta.is_up(1), "the first one stays");
}

/// A copied machine has the machine id of the one that it was copied from.
#[test]
fn of_two_daemons_with_one_identity_the_one_that_comes_back_keeps_the_link() {
    let mut stand = Setting::plain(ModeChoice::Auto, 1).build();
    stand.until_up(1);
    let first = stand.beta.link.peer.as_ref().expect("it is up").session;
    let is_of = |stand: &Stand, session| stand.beta.link.peer.as_ref().is_some_and(|peer| peer.session == session);
    let mut copy = stand.connect();
    let start = bytes(&ChannelFrame::Start { first: 1 });
    copy.write_all(&[bytes(&ChannelFrame::Hello(hello())), start].concat()).unwrap();
    stand.until("the copy has taken the link", |stand| is_of(stand, hello().session));
    assert!(!stand.beta.link.has_twins(clock::now()), "it may be the node, started anew");
    stand.until("the first one has it again", |stand| is_of(stand, first) && stand.beta.is_up(1));
    assert!(stand.beta.link.has_twins(clock::now()));
    let (why, mut stream) = stand.turned_away(&bytes(&ChannelFrame::Hello(hello())));
    assert_eq!(why, Failure::Refused(Rejection::TwoOfOneName));
    assert_eq!(refusal_in(&mut stream), Some(Rejection::TwoOfOneName));
    stand.until_up(1);
    assert!(is_of(&stand, first), "it keeps the link");
}

#[test]
fn frames_that_may_not_come_end_their_channel_and_harm_nobody() {
    let start = bytes(&ChannelFrame::Start { first: 1 });
    let message = |sequence: u64, envelope: &Envelope, message: &Message, payload: u32| {
        let mut body = Vec::new();
        encode_message(envelope, message, &mut body);
        let head = FrameHead::of_message(sequence, &body, Packing::Plain, payload, payload).encode();
        [&head[..], &body, &vec![0; payload as usize]].concat()
    };
    let held = Message::Log(LogMessage::Held(Held {
        accepted: Lsn(1),
        held: Lsn(1),
        synced: None,
        mark: forebay_core::cluster::MarkNumber(0),
        room: Room::default(),
        host: hello().host,
    }));
    let mut damaged = message(1, &from_alpha(), &held, 0);
    damaged[80] ^= 1;
    let then = |rest: Vec<u8>| [start.clone(), rest].concat();
    for (what, words) in [
        ("no start", message(1, &from_alpha(), &held, 0)),
        ("a second start", then(start.clone())),
        ("a second hello", then(bytes(&ChannelFrame::Hello(hello())))),
        ("a number far ahead", then(message(1 << 40, &from_alpha(), &held, 0))),
        ("from another node", then(message(1, &envelope(u64::from(b'g'), u64::from(b'b')), &held, 0))),
        ("for another node", then(message(1, &envelope(u64::from(b'a'), u64::from(b'g')), &held, 0))),
        ("payload without records", then(message(1, &from_alpha(), &held, 4096))),
        ("a damaged body", then(damaged)),
        ("acknowledged what was not sent", then(bytes(&ChannelFrame::Acknowledge { received: 1 << 30, bytes: 0 }))),
        ("bytes that were not sent", then(bytes(&ChannelFrame::Acknowledge { received: 0, bytes: 1 << 50 }))),
        ("a pong that nobody waits for", then(bytes(&ChannelFrame::Pong { sent: Instant(1) }))),
        ("noise", then(vec![0xa5; 4096])),
    ] {
        let mut stand = Stand::quiet(ModeChoice::Auto, Security::Plain);
        let mut stream = stand.impostor();
        stream.write_all(&words).unwrap();
        stand.until(what, |stand| stand.down().is_some());
        assert!(matches!(stand.down(), Some(Failure::Malformed(_))), "{what}: {:?}", stand.down());
        assert!(stand.beta.sink.control.is_empty(), "{what}");
        assert!(!stand.beta.link.is_up());
        stand.impostor();
    }
}

#[test]
fn a_payload_that_does_not_unpack_ends_its_channel_and_gives_its_frames_back() {
    for packing in [Packing::Lz4, Packing::Zstd] {
        let mut stand = Stand::quiet(ModeChoice::Auto, Security::Plain);
        let mut stream = stand.impostor();
        let (append, _) = stand.append(0, 16);
        let mut body = Vec::new();
        encode_message(&from_alpha(), &append, &mut body);
        let head = FrameHead::of_message(1, &body, packing, 3000, 16 * 4096).encode();
        let words = [&bytes(&ChannelFrame::Start { first: 1 })[..], &head, &body, &[0xf7; 3000]].concat();
        stream.write_all(&words).unwrap();
        stand.until("down", |stand| stand.down().is_some());
        assert!(matches!(stand.down(), Some(Failure::Malformed(_))), "{:?}", stand.down());
        assert_eq!((stand.beta.sink.free.len(), stand.beta.sink.given_back), (4096, 16));
    }
}

#[test]
fn a_repeated_message_is_dropped() {
    let mut stand = Stand::quiet(ModeChoice::Auto, Security::Plain);
    let mut stream = stand.impostor();
    let mut body = Vec::new();
    encode_message(&from_alpha(), &Message::Ownership(OwnershipMessage::TakeOver), &mut body);
    let head = FrameHead::of_message(1, &body, Packing::Plain, 0, 0).encode();
    let once = [&head[..], &body].concat();
    let words = [&bytes(&ChannelFrame::Start { first: 1 })[..], &once, &once, &once].concat();
    stream.write_all(&words).unwrap();
    stand.until("three", |stand| stand.beta.link.counts.duplicates == 2);
    assert_eq!(stand.beta.sink.control, [Message::Ownership(OwnershipMessage::TakeOver)]);
    assert!(stand.beta.is_up(1));
}

/// Messages of every kind of payload, as a sender would put them on a channel.
fn stream(stand: &Stand) -> Vec<u8> {
    let mut all = bytes(&ChannelFrame::Start { first: 1 });
    for (index, packing) in [Packing::Plain, Packing::Lz4, Packing::Zstd, Packing::Plain].into_iter().enumerate() {
        let sequence = index as u64 + 1;
        let (append, payload) = stand.append(sequence * 1000, 40);
        let plain: Vec<u8> =
            (0..40).flat_map(|at| stand.source.bytes(FrameId(((sequence * 1000 + at) % 64) as u32)).to_vec()).collect();
        let packed = Packer::new().pack(&payload, packing).map_or(plain, |packed| packed.bytes);
        let mut body = Vec::new();
        encode_message(&from_alpha(), &append, &mut body);
        let head = FrameHead::of_message(sequence, &body, packing, packed.len() as u32, 40 * 4096).encode();
        all.extend_from_slice(&[&head[..], &body, &packed, &bytes(&ChannelFrame::Ping { sent: Instant(7) })].concat());
    }
    all
}

/// One byte is changed, or none, and the stream is cut into pieces anywhere: no frame of memory is lost, nothing that was
/// delivered differs from what its records say, and without a change all of it arrives.
#[test]
fn a_stream_may_be_cut_anywhere_and_damaged_anywhere() {
    let mut state = 0x1234_5678_9abc_def1u64;
    let mut random = move |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let mut whole = 0;
    for round in 0..40 {
        let mut stand = Stand::quiet(ModeChoice::Auto, Security::Plain);
        stand.beta.sink.checks = false;
        let mut words = stream(&stand);
        if round % 4 != 0 {
            // Heads and bodies are few of the bytes, and what comes of them is most interesting.
            let at = if round % 2 == 0 { random(words.len()) } else { random(1600) };
            words[at] ^= 1 << random(8);
        }
        let mut stream = stand.impostor();
        let mut rest = &words[..];
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.len().min(1 + random(60_000)));
            // The link may have hung up.
            let _ = stream.write_all(piece);
            stand.round();
            rest = after;
        }
        let end = |stand: &Stand| stand.down().is_some() || stand.beta.sink.order.len() == 4;
        stream.shutdown(std::net::Shutdown::Write).unwrap_or(());
        stand.until("an end", end);
        let arrived = stand.beta.sink.order.len();
        assert!(round % 4 != 0 || (arrived == 4 && stand.beta.sink.damaged == 0), "{arrived} of 4 arrived");
        stand.until("down", |stand| stand.down().is_some());
        assert_eq!(stand.beta.sink.free.len(), 4096, "round {round}: a frame was lost");
        whole += usize::from(arrived == 4);
    }
    assert!((10..40).contains(&whole), "{whole} of 40 arrived whole: the damage reached something");
}
