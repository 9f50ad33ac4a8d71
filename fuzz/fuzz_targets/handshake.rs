//! Negotiation survives any bytes, and it makes no difference where they are cut.
#![no_main]

use arbitrary::Arbitrary;
use forebay_core::roles::Client;
use forebay_front::nbd::handshake::{ANSWER_BYTES_MAX, ExportInfo, Handshake, Outcome};
use forebay_front::nbd::proto::put_option;
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
enum Item<'a> {
    Raw(&'a [u8]),
    Option {
        number: u8,
        payload: &'a [u8],
    },
    /// `count_off`: how far the count before the list is from the truth.
    Named {
        number: u8,
        name: Name,
        queries: Vec<Name>,
        words: Vec<u16>,
        count_off: i8,
    },
}

#[derive(Arbitrary, Debug)]
enum Name {
    Default,
    Known,
    Allocation,
    Tier,
    Other(String),
}

impl Name {
    fn bytes(&self) -> &[u8] {
        match self {
            Name::Default => b"",
            Name::Known => b"vm1",
            Name::Allocation => b"base:allocation",
            Name::Tier => b"forebay:tier",
            Name::Other(name) => name.as_bytes(),
        }
    }
}

fn put_string(out: &mut Vec<u8>, string: &[u8]) {
    out.extend_from_slice(&(string.len() as u32).to_be_bytes());
    out.extend_from_slice(string);
}

fuzz_target!(|input: (u8, Vec<Item<'_>>, Vec<u8>)| {
    let (flags, items, cuts) = input;
    let mut bytes = u32::from(flags & 7).to_be_bytes().to_vec();
    for item in &items {
        match item {
            Item::Raw(raw) => bytes.extend_from_slice(raw),
            Item::Option { number, payload } => put_option(&mut bytes, u32::from(*number % 16), payload),
            Item::Named { number, name, queries, words, count_off } => {
                let off = i32::from(count_off % 3);
                let mut payload = Vec::new();
                put_string(&mut payload, name.bytes());
                let number = 6 + u32::from(*number % 5);
                if number < 8 {
                    payload.extend_from_slice(&(words.len() as u16).wrapping_add_signed(off as i16).to_be_bytes());
                    words.iter().for_each(|word| payload.extend_from_slice(&word.to_be_bytes()));
                } else {
                    payload.extend_from_slice(&(queries.len() as u32).wrapping_add_signed(off).to_be_bytes());
                    queries.iter().for_each(|query| put_string(&mut payload, query.bytes()));
                }
                put_option(&mut bytes, number, &payload);
            }
        }
    }
    let export = ExportInfo {
        name: "vm1".into(),
        size_bytes: 1 << 30,
        description: "a volume".into(),
        read_only: flags & 8 != 0,
        request_bytes_max: 32 << 20,
    };
    let begin = |out: &mut Vec<u8>| if flags & 16 != 0 { Handshake::requiring_tls(out) } else { Handshake::new(out) };
    let mut whole_out = Vec::new();
    let mut handshake = begin(&mut whole_out);
    let whole = handshake.feed(&bytes, &Client::Local, &export, &mut whole_out);
    assert!(whole_out.len() < ANSWER_BYTES_MAX + (128 << 10));

    let mut out = Vec::new();
    let mut handshake = begin(&mut out);
    let mut rest = &bytes[..];
    let mut outcome = Outcome::Continue;
    for cut in cuts.iter().copied().chain(std::iter::repeat(255)) {
        if rest.is_empty() || outcome != Outcome::Continue {
            break;
        }
        let (part, behind) = rest.split_at(rest.len().min(usize::from(cut) + 1));
        rest = behind;
        outcome = handshake.feed(part, &Client::Local, &export, &mut out);
    }
    if whole == Outcome::Close("the client sent bytes in the clear behind STARTTLS") {
        // Cut there, nothing had arrived behind it yet.
        assert!(outcome == whole || outcome == Outcome::StartTls);
        return;
    }
    assert_eq!(out, whole_out);
    match (outcome, whole) {
        (Outcome::Ready(mut cut), Outcome::Ready(whole)) => {
            cut.leftover.extend_from_slice(rest);
            assert_eq!(cut, whole);
        }
        (cut, whole) => assert_eq!(cut, whole),
    }
});
