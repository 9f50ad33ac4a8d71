//! Every option in every state, every limit, and the same conversation one byte at a time.

use super::*;
use proptest::prelude::*;

struct Two;

fn export(name: &str) -> ExportInfo {
    ExportInfo {
        name: name.into(),
        size_bytes: 0x1234_5000,
        description: format!("volume {name}"),
        read_only: name == "archive",
        request_bytes_max: 8 << 20,
    }
}

impl Exports for Two {
    fn lookup(&self, _: &Client, name: &str) -> Option<ExportInfo> {
        match name {
            "" | "vm1" => Some(export("vm1")),
            "archive" => Some(export("archive")),
            _ => None,
        }
    }
    fn list(&self, _: &Client) -> Vec<(String, String)> {
        vec![("vm1".into(), "volume vm1".into()), ("archive".into(), String::new())]
    }
}

/// What comes after the greeting.
fn converse(bytes: &[u8]) -> (Outcome, Vec<u8>) {
    let mut out = Vec::new();
    let mut handshake = Handshake::new(&mut out);
    assert_eq!(out, greeting());
    out.clear();
    let outcome = handshake.feed(bytes, &Client::Local, &Two, &mut out);
    (outcome, out)
}

const FIXED: [u8; 4] = [0, 0, 0, 3];

/// Client flags, then options.
fn client(flags: u32, options: &[(u32, &[u8])]) -> Vec<u8> {
    let mut bytes = flags.to_be_bytes().to_vec();
    for (number, payload) in options {
        put_option(&mut bytes, *number, payload);
    }
    bytes
}

/// Option replies as (option, reply, payload).
fn replies(mut out: &[u8]) -> Vec<(u32, u32, Vec<u8>)> {
    let mut found = Vec::new();
    while !out.is_empty() {
        assert_eq!(out[..8], OPTION_REPLY_MAGIC.to_be_bytes());
        let word = |at: usize| u32::from_be_bytes(out[at..at + 4].try_into().unwrap());
        let length = word(16) as usize;
        found.push((word(8), word(12), out[20..20 + length].to_vec()));
        out = &out[20 + length..];
    }
    found
}

fn codes(out: &[u8]) -> Vec<(u32, u32)> {
    replies(out).into_iter().map(|(option, reply, _)| (option, reply)).collect()
}

fn info_payload(name: &str, items: &[u16]) -> Vec<u8> {
    let mut b = (name.len() as u32).to_be_bytes().to_vec();
    b.extend_from_slice(name.as_bytes());
    b.extend_from_slice(&(items.len() as u16).to_be_bytes());
    items.iter().for_each(|item| b.extend_from_slice(&item.to_be_bytes()));
    b
}

fn context_payload(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut b = (name.len() as u32).to_be_bytes().to_vec();
    b.extend_from_slice(name.as_bytes());
    b.extend_from_slice(&(queries.len() as u32).to_be_bytes());
    for query in queries {
        b.extend_from_slice(&(query.len() as u32).to_be_bytes());
        b.extend_from_slice(query.as_bytes());
    }
    b
}

const ACK: u32 = OptionReply::Ack as u32;
const SERVER: u32 = OptionReply::Server as u32;
const INFO: u32 = OptionReply::Info as u32;
const CONTEXT: u32 = OptionReply::MetaContext as u32;
const UNSUP: u32 = OptionReply::ErrUnsup as u32;
const INVALID: u32 = OptionReply::ErrInvalid as u32;
const UNKNOWN: u32 = OptionReply::ErrUnknown as u32;
const POLICY: u32 = OptionReply::ErrPolicy as u32;
const TLS_REQD: u32 = OptionReply::ErrTlsReqd as u32;
const EXT_HEADER_REQD: u32 = OptionReply::ErrExtHeaderReqd as u32;
const TOO_BIG: u32 = OptionReply::ErrTooBig as u32;

fn ready(outcome: Outcome) -> Negotiated {
    match outcome {
        Outcome::Ready(negotiated) => *negotiated,
        Outcome::Continue | Outcome::Await | Outcome::StartTls | Outcome::Close(_) => panic!("{outcome:?}"),
    }
}

#[test]
fn go_enters_with_everything_that_was_asked() {
    let bytes = client(3, &[(8, b""), (7, &info_payload("vm1", &[1, 2, 3]))]);
    let (outcome, out) = converse(&[&bytes[..], b"early"].concat());
    let found = ready(outcome);
    assert_eq!(found.export, export("vm1"));
    assert_eq!(found.framing, Framing::Structured);
    assert!(found.contexts.is_empty());
    assert_eq!(found.leftover, b"early");
    let found = replies(&out);
    assert_eq!(found.len(), 6);
    assert_eq!(found[0], (8, ACK, vec![]));
    let flags = transmission_flags(&export("vm1"), Framing::Structured, ContextSet::default());
    let item = [&[0, 0][..], &0x1234_5000u64.to_be_bytes(), &flags.to_be_bytes()].concat();
    assert_eq!(found[1], (7, INFO, item));
    assert_eq!(found[2], (7, INFO, b"\0\x01vm1".to_vec()));
    assert_eq!(found[3], (7, INFO, b"\0\x02volume vm1".to_vec()));
    assert_eq!(found[4], (7, INFO, b"\0\x03\0\0\0\x01\0\0\x10\0\0\x80\0\0".to_vec()));
    assert_eq!(found[5], (7, ACK, vec![]));
}

#[test]
fn one_byte_at_a_time_is_the_same_conversation() {
    let bytes = client(
        3,
        &[
            (8, b""),
            (3, b""),
            (9, &context_payload("vm1", &[])),
            (10, &context_payload("vm1", &["base:allocation", "forebay:tier"])),
            (6, &info_payload("archive", &[3])),
            (99, b"what"),
            (7, &info_payload("vm1", &[])),
        ],
    );
    let (whole, whole_out) = converse(&bytes);
    let mut out = Vec::new();
    let mut handshake = Handshake::new(&mut out);
    out.clear();
    for (index, byte) in bytes.iter().enumerate() {
        let outcome = handshake.feed(&[*byte], &Client::Local, &Two, &mut out);
        if index + 1 == bytes.len() {
            assert_eq!(outcome, whole);
        } else {
            assert_eq!(outcome, Outcome::Continue, "byte {index}");
        }
    }
    assert_eq!(out, whole_out);
    let contexts = ready(whole).contexts;
    assert_eq!(contexts.iter().collect::<Vec<_>>(), [Context::Allocation, Context::Tier]);
}

#[test]
fn client_flags_that_were_not_offered_end_it() {
    for flags in [4, 0x8000_0000, 7] {
        let (outcome, out) = converse(&u32::to_be_bytes(flags));
        assert!(matches!(outcome, Outcome::Close(_)), "{flags}");
        assert!(out.is_empty());
    }
    for flags in 0..4u32 {
        assert_eq!(converse(&flags.to_be_bytes()).0, Outcome::Continue);
    }
}

#[test]
fn export_name_answers_with_or_without_zeroes() {
    for (flags, zeroes) in [(1, 124), (3, 0), (0, 124), (2, 0)] {
        let (outcome, out) = converse(&client(flags, &[(1, b"archive")]));
        assert_eq!(ready(outcome).export, export("archive"));
        let transmission = transmission_flags(&export("archive"), Framing::Simple, ContextSet::default());
        let expected = [&0x1234_5000u64.to_be_bytes()[..], &transmission.to_be_bytes(), &vec![0; zeroes]].concat();
        assert_eq!(out, expected);
        assert_ne!(transmission & transmission::READ_ONLY, 0);
        assert_eq!(transmission & transmission::SEND_DF, 0, "no structured replies, so nothing to keep in one chunk");
    }
    assert_eq!(ready(converse(&client(3, &[(1, b"")])).0).export.name, "vm1");
    for name in [&b"nobody"[..], b"\xff", &[b'a'; STRING_BYTES_MAX + 1]] {
        let (outcome, out) = converse(&client(3, &[(1, name)]));
        assert!(matches!(outcome, Outcome::Close(_)));
        assert!(out.is_empty(), "the option has no error reply");
    }
}

#[test]
fn without_fixed_newstyle_only_export_name_is_understood() {
    for option in (2..13).chain([99]) {
        let (outcome, out) = converse(&client(0, &[(option, b"")]));
        assert!(matches!(outcome, Outcome::Close(_)), "option {option}");
        assert!(out.is_empty());
    }
}

#[test]
fn every_option_with_an_empty_payload_is_answered() {
    // With and without structured replies agreed before it.
    for structured in [false, true] {
        for option in (2..13).chain([99, u32::MAX]) {
            let mut options: Vec<(u32, &[u8])> = vec![];
            if structured {
                options.push((8, b""));
            }
            options.push((option, b""));
            let (outcome, out) = converse(&client(3, &options));
            let found = codes(&out)[usize::from(structured)..].to_vec();
            let (ends, expected) = match option {
                2 => (true, vec![(2, ACK)]),
                3 => (false, vec![(3, SERVER), (3, SERVER), (3, ACK)]),
                6 | 7 | 9 | 10 => (false, vec![(option, INVALID)]),
                8 | 11 => (false, vec![(option, ACK)]),
                5 => (false, vec![(5, POLICY)]),
                _ => (false, vec![(option, UNSUP)]),
            };
            assert_eq!(found, expected, "option {option}");
            assert_eq!(matches!(outcome, Outcome::Close(_)), ends, "option {option}");
        }
    }
}

#[test]
fn every_option_with_a_payload_that_means_nothing_is_answered() {
    for option in (2..13).chain([99]) {
        let (outcome, out) = converse(&client(3, &[(8, b""), (option, b"\xff\xff\xff\xff\xff")]));
        let found = codes(&out)[1..].to_vec();
        let (ends, expected) = match option {
            2 => (true, vec![(2, ACK)]),
            3 | 8 | 11 => (false, vec![(option, INVALID)]),
            5 => (false, vec![(5, POLICY)]),
            6 | 7 | 9 | 10 => (false, vec![(option, TOO_BIG)]),
            _ => (false, vec![(option, UNSUP)]),
        };
        assert_eq!(found, expected, "option {option}");
        assert_eq!(matches!(outcome, Outcome::Close(_)), ends, "option {option}");
    }
}

#[test]
fn unknown_exports_are_refused_and_negotiation_goes_on() {
    let nobody = info_payload("nobody", &[]);
    let contexts = context_payload("nobody", &[]);
    let options: [(u32, &[u8]); 6] =
        [(8, b""), (6, &nobody), (7, &nobody), (9, &contexts), (10, &contexts), (7, &info_payload("", &[1]))];
    let (outcome, out) = converse(&client(3, &options));
    assert_eq!(codes(&out)[1..5], [(6, UNKNOWN), (7, UNKNOWN), (9, UNKNOWN), (10, UNKNOWN)]);
    assert!(replies(&out).contains(&(7, INFO, b"\0\x01vm1".to_vec())), "the default export says its own name");
    assert_eq!(ready(outcome).export.name, "vm1");
}

#[test]
fn contexts_need_structured_replies() {
    for option in [9, 10] {
        let (_, out) = converse(&client(3, &[(option, &context_payload("vm1", &[]))]));
        assert_eq!(codes(&out), [(option, INVALID)]);
    }
}

#[test]
fn contexts_are_listed_by_name_and_by_namespace() {
    let list = |queries: &[&str]| {
        let (_, out) = converse(&client(3, &[(8, b""), (9, &context_payload("vm1", queries))]));
        let found = replies(&out)[1..].to_vec();
        assert_eq!(found.last().unwrap().1, ACK);
        let names = found[..found.len() - 1].iter().map(|(_, reply, item)| {
            assert_eq!(*reply, CONTEXT);
            assert_eq!(item[..4], [0; 4], "a list gives no numbers");
            String::from_utf8(item[4..].to_vec()).unwrap()
        });
        names.collect::<Vec<_>>()
    };
    assert_eq!(list(&[]), ["base:allocation", "forebay:dirty", "forebay:tier"]);
    assert_eq!(list(&["forebay:"]), ["forebay:dirty", "forebay:tier"]);
    assert_eq!(list(&["base:allocation", "qemu:dirty-bitmap:x"]), ["base:allocation"]);
    assert!(list(&["base", "forebay"]).is_empty());
}

#[test]
fn selected_contexts_are_those_of_the_last_selection_for_the_same_export() {
    let enter = |options: &[(u32, &[u8])]| {
        let mut options = options.to_vec();
        options.insert(0, (8, b""));
        ready(converse(&client(3, &options)).0).contexts.iter().collect::<Vec<_>>()
    };
    let dirty = context_payload("vm1", &["forebay:dirty"]);
    let base = context_payload("vm1", &["base:allocation", "nonsense", "forebay:"]);
    let none = context_payload("vm1", &[]);
    let go = info_payload("vm1", &[]);
    assert_eq!(enter(&[(10, &dirty), (7, &go)]), [Context::Dirty]);
    assert_eq!(enter(&[(10, &dirty), (10, &base), (7, &go)]), [Context::Allocation], "no wildcard in a selection");
    assert_eq!(enter(&[(10, &dirty), (10, &none), (7, &go)]), []);
    assert_eq!(enter(&[(10, &dirty), (10, b"broken"), (7, &go)]), [], "a failed selection leaves none");
    assert_eq!(enter(&[(10, &dirty), (9, &none), (7, &go)]), [Context::Dirty], "a list selects nothing");
    assert_eq!(enter(&[(10, &dirty), (7, &info_payload("archive", &[]))]), [], "selected for another export");
    assert_eq!(enter(&[(10, &dirty), (1, b"vm1")]), [Context::Dirty]);
}

#[test]
fn a_selection_names_its_numbers() {
    let (_, out) = converse(&client(3, &[(8, b""), (10, &context_payload("vm1", &["forebay:tier"]))]));
    assert_eq!(replies(&out)[1], (10, CONTEXT, b"\0\0\0\x03forebay:tier".to_vec()));
}

#[test]
fn a_wrong_option_magic_ends_it() {
    let mut bytes = client(3, &[(3, b"")]);
    bytes[4] ^= 1;
    assert!(matches!(converse(&bytes).0, Outcome::Close(_)));
}

#[test]
fn an_option_longer_than_the_limit_ends_it_before_it_takes_memory() {
    let mut bytes = FIXED.to_vec();
    bytes.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
    bytes.extend_from_slice(&7u32.to_be_bytes());
    bytes.extend_from_slice(&(OPTION_PAYLOAD_BYTES_MAX as u32 + 1).to_be_bytes());
    let (outcome, out) = converse(&bytes);
    assert!(matches!(outcome, Outcome::Close(_)));
    assert_eq!(codes(&out), [(7, TOO_BIG)]);
    // The longest one that is allowed is taken, and skipped as a whole.
    let longest = vec![0u8; OPTION_PAYLOAD_BYTES_MAX];
    let (outcome, out) = converse(&client(3, &[(99, &longest), (2, b"")]));
    assert!(matches!(outcome, Outcome::Close(_)));
    assert_eq!(codes(&out), [(99, UNSUP), (2, ACK)]);
}

#[test]
fn too_many_options_end_it() {
    let options = vec![(99, &b""[..]); OPTIONS_MAX as usize];
    assert_eq!(converse(&client(3, &options)).0, Outcome::Continue);
    let options = vec![(99, &b""[..]); OPTIONS_MAX as usize + 1];
    assert!(matches!(converse(&client(3, &options)).0, Outcome::Close(_)));
}

#[test]
fn a_client_that_asks_for_endless_lists_is_sent_away() {
    struct Many;
    impl Exports for Many {
        fn lookup(&self, _: &Client, _: &str) -> Option<ExportInfo> {
            None
        }
        fn list(&self, _: &Client) -> Vec<(String, String)> {
            (0..1000).map(|number| (format!("volume-{number:04}"), "x".repeat(100))).collect()
        }
    }
    let mut out = Vec::new();
    let mut handshake = Handshake::new(&mut out);
    let outcome = handshake.feed(&client(3, &[(3, &b""[..]); 100]), &Client::Local, &Many, &mut out);
    assert!(matches!(outcome, Outcome::Close(_)));
    assert!(out.len() < ANSWER_BYTES_MAX + 200_000);
}

#[test]
fn where_tls_is_required_nothing_else_is_answered_before_it() {
    let begin = || {
        let mut out = Vec::new();
        let handshake = Handshake::requiring_tls(&mut out);
        assert_eq!(out, greeting(), "the greeting gives nothing away");
        handshake
    };
    let go = info_payload("vm1", &[]);
    let options: &[(u32, &[u8])] =
        &[(3, b""), (6, &go), (7, &go), (8, b""), (9, b"x"), (10, b"x"), (11, b""), (5, b"payload"), (77, b"")];
    let mut out = Vec::new();
    let mut handshake = begin();
    assert_eq!(handshake.feed(&client(3, options), &Client::Local, &Two, &mut out), Outcome::Continue);
    let expected = options.iter().map(|&(option, _)| (option, if option == 5 { INVALID } else { TLS_REQD }));
    assert_eq!(codes(&out), expected.collect::<Vec<_>>());
    // EXPORT_NAME has no error reply; ABORT is a farewell as ever.
    assert!(matches!(begin().feed(&client(3, &[(1, b"vm1")]), &Client::Local, &Two, &mut out), Outcome::Close(_)));
    out.clear();
    assert!(matches!(begin().feed(&client(3, &[(2, b"")]), &Client::Local, &Two, &mut out), Outcome::Close(_)));
    assert_eq!(codes(&out), [(2, ACK)]);
    // A client without fixed newstyle cannot ask for it.
    assert!(matches!(begin().feed(&client(0, &[(5, b"")]), &Client::Local, &Two, &mut out), Outcome::Close(_)));
}

#[test]
fn under_tls_the_negotiation_begins_anew() {
    let mut out = Vec::new();
    let mut handshake = Handshake::requiring_tls(&mut out);
    out.clear();
    assert_eq!(handshake.feed(&client(3, &[(8, b""), (5, b"")]), &Client::Local, &Two, &mut out), Outcome::StartTls);
    assert_eq!(codes(&out), [(8, TLS_REQD), (5, ACK)]);
    let mut handshake = handshake.encrypted();
    out.clear();
    let mut bytes = Vec::new();
    for (option, payload) in [(5, &b""[..]), (7, &info_payload("vm1", &[]))] {
        put_option(&mut bytes, option, payload);
    }
    let found = ready(handshake.feed(&bytes, &Client::Local, &Two, &mut out));
    assert_eq!(found.framing, Framing::Simple, "what was said in the clear does not count");
    assert_eq!(codes(&out), [(5, INVALID), (7, INFO), (7, ACK)], "no second TLS, and no second greeting");
}

#[test]
fn bytes_behind_starttls_are_an_attack() {
    // What somebody slips in before TLS would be taken for the client's encrypted words.
    for injected in [&b"x"[..], &client(3, &[(8, b"")])[4..], &client(3, &[(5, b"")])[4..]] {
        let mut out = Vec::new();
        let mut handshake = Handshake::requiring_tls(&mut out);
        let bytes = [&client(3, &[(5, b"")]), injected].concat();
        assert!(matches!(handshake.feed(&bytes, &Client::Local, &Two, &mut out), Outcome::Close(_)), "{injected:?}");
    }
}

#[test]
fn where_tls_is_off_that_is_said() {
    let (outcome, out) = converse(&client(3, &[(5, b"")]));
    assert_eq!((outcome, codes(&out)), (Outcome::Continue, vec![(5, POLICY)]));
}

#[test]
fn extended_headers_take_precedence_and_cannot_be_undone() {
    let go = info_payload("vm1", &[]);
    let contexts = context_payload("vm1", &["base:allocation"]);
    let options: &[(u32, &[u8])] = &[(8, b""), (11, b"x"), (11, b""), (11, b""), (8, b""), (10, &contexts), (7, &go)];
    let (outcome, out) = converse(&client(3, options));
    let found = ready(outcome);
    assert_eq!(found.framing, Framing::Extended);
    let expected = [(8, ACK), (11, INVALID), (11, ACK), (11, ACK), (8, EXT_HEADER_REQD), (10, CONTEXT), (10, ACK)];
    assert_eq!(codes(&out), [&expected[..], &[(7, INFO), (7, ACK)]].concat());
    let info = replies(&out).into_iter().find(|reply| reply.1 == INFO).unwrap().2;
    let flags = u16::from_be_bytes([info[10], info[11]]);
    assert_ne!(flags & transmission::SEND_DF, 0);
    assert_ne!(flags & transmission::BLOCK_STATUS_PAYLOAD, 0);
    // Without contexts there is nothing to choose from, and without extended headers no way to choose.
    let without = transmission_flags(&export("vm1"), Framing::Extended, ContextSet::default());
    assert_eq!(without & transmission::BLOCK_STATUS_PAYLOAD, 0);
    let without = transmission_flags(&export("vm1"), Framing::Structured, found.contexts);
    assert_eq!(without & transmission::BLOCK_STATUS_PAYLOAD, 0);
    // They stand alone, too; and EXPORT_NAME has no place for them.
    assert_eq!(ready(converse(&client(3, &[(11, b""), (7, &go)])).0).framing, Framing::Extended);
    assert!(matches!(converse(&client(3, &[(11, b""), (1, b"vm1")])).0, Outcome::Close(_)));
}

proptest! {
    #[test]
    fn any_bytes_in_any_slices_are_survived(
        start in any::<bool>(),
        pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 0..20),
    ) {
        let mut out = Vec::new();
        let mut handshake = Handshake::new(&mut out);
        if start {
            let _ = handshake.feed(&FIXED, &Client::Local, &Two, &mut out);
        }
        for piece in pieces {
            if handshake.feed(&piece, &Client::Local, &Two, &mut out) != Outcome::Continue {
                break;
            }
        }
    }

    #[test]
    fn any_options_in_any_order_are_survived(
        options in proptest::collection::vec((0u32..14, proptest::collection::vec(any::<u8>(), 0..40)), 0..20),
    ) {
        let mut bytes = FIXED.to_vec();
        options.iter().for_each(|(number, payload)| put_option(&mut bytes, *number, payload));
        let _ = converse(&bytes);
    }
}

/// An export that is known before it can be entered, and has no place at last.
#[derive(Default)]
struct Later {
    is_there: std::cell::Cell<bool>,
    is_full: bool,
}

impl Exports for Later {
    fn lookup(&self, client: &Client, name: &str) -> Option<ExportInfo> {
        Two.lookup(client, name).filter(|_| self.is_there.get())
    }
    fn list(&self, _: &Client) -> Vec<(String, String)> {
        Vec::new()
    }
    fn awaits(&self, _: &Client, name: &str) -> bool {
        name == "vm1"
    }
    fn admit(&self, _: &Client) -> Result<(), String> {
        if self.is_full { Err("all places are taken".into()) } else { Ok(()) }
    }
}

#[test]
fn who_asks_for_an_export_that_will_be_there_waits_for_it() {
    for (option, then) in
        [(7, info_payload("vm1", &[])), (10, context_payload("vm1", &["base:allocation"])), (1, b"vm1".to_vec())]
    {
        let exports = Later::default();
        let mut out = Vec::new();
        let mut handshake = Handshake::new(&mut out);
        let mut feed = |bytes: &[u8], out: &mut Vec<u8>| handshake.feed(bytes, &Client::Local, &exports, out);
        let unknown = info_payload("nobody", &[]);
        assert_eq!(feed(&client(3, &[(8, b""), (7, &unknown)]), &mut out), Outcome::Continue);
        out.clear();
        let mut asked = Vec::new();
        put_option(&mut asked, option, &then);
        assert_eq!(feed(&asked, &mut out), Outcome::Await);
        for _ in 0..2 * OPTIONS_MAX {
            assert_eq!(feed(b"", &mut out), Outcome::Await);
        }
        assert!(out.is_empty(), "{option}: it is answered before: {out:?}");
        exports.is_there.set(true);
        match feed(b"", &mut out) {
            Outcome::Ready(negotiated) => assert_eq!(negotiated.export, export("vm1")),
            other => assert_eq!((option, other), (10, Outcome::Continue)),
        }
        assert!(!out.is_empty());
    }
}

#[test]
fn who_finds_no_place_is_told_and_may_ask_again() {
    let exports = Later { is_there: true.into(), is_full: true };
    let mut out = Vec::new();
    let mut handshake = Handshake::new(&mut out);
    out.clear();
    let asked = client(3, &[(6, &info_payload("vm1", &[])), (7, &info_payload("vm1", &[]))]);
    assert_eq!(handshake.feed(&asked, &Client::Local, &exports, &mut out), Outcome::Continue);
    let (option, reply, words) = replies(&out).pop().unwrap();
    assert_eq!((option, reply), (7, OptionReply::ErrPolicy as u32));
    assert_eq!(words, b"all places are taken");
    let mut by_name = Vec::new();
    put_option(&mut by_name, 1, b"vm1");
    let closed = handshake.feed(&by_name, &Client::Local, &exports, &mut out);
    assert!(matches!(closed, Outcome::Close(_)), "{closed:?}");
}
