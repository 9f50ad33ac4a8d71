//! A connection survives any requests, however they are cut, and loses no frame of the volume.
#![no_main]

use arbitrary::Arbitrary;
use forebay_core::roles::Client;
use forebay_core::types::Instant;
use forebay_front::memory::MemoryVolume;
use forebay_front::nbd::channel::Channel;
use forebay_front::nbd::connection::{Connection, Scratch};
use forebay_front::nbd::handshake::{ExportInfo, Negotiated};
use forebay_front::nbd::proto::{Command, Context, ContextSet, Framing, RequestHead, command_flags};
use libfuzzer_sys::fuzz_target;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

const SIZE: u64 = 256 << 10;

#[derive(Arbitrary, Debug)]
struct Item {
    command: u8,
    flags: u8,
    offset: u32,
    length: u16,
    /// Upper half of an extended header's length.
    length_high: u32,
    /// Whole blocks, as many in a row.
    run: u8,
    fill: u8,
    raw: Vec<u8>,
    /// Cuts the payload short: everything behind it is out of step.
    short: bool,
}

#[derive(Arbitrary, Debug)]
struct Input {
    framing: u8,
    contexts: bool,
    read_only: bool,
    holds_answers: bool,
    items: Vec<Item>,
    cuts: Vec<u16>,
}

fuzz_target!(|input: Input| {
    let framing = match input.framing % 3 {
        0 => Framing::Simple,
        1 => Framing::Structured,
        _ => Framing::Extended,
    };
    let extended = framing == Framing::Extended;
    let encode = |head: &RequestHead| if extended { head.encode_extended().to_vec() } else { head.encode().to_vec() };
    let mut bytes = Vec::new();
    for item in input.items.iter().take(16) {
        bytes.extend_from_slice(&item.raw);
        for index in 0..u64::from(item.run % 24) {
            let offset = (u64::from(item.offset) + index) % (SIZE / 4096) * 4096;
            let flags = if extended { command_flags::PAYLOAD_LEN } else { 0 };
            let head = RequestHead { flags, command: Command::Write, cookie: index, offset, length: 4096 };
            bytes.extend_from_slice(&encode(&head));
            bytes.extend_from_slice(&[item.fill; 4096]);
        }
        let command = Command::of(u16::from(item.command % 9));
        let head = RequestHead {
            flags: u16::from(item.flags),
            command,
            cookie: 1 << 40,
            offset: u64::from(item.offset) % (SIZE + 9000),
            length: u64::from(item.length),
        };
        let has_payload = head.has_payload(framing);
        let high = if extended && !has_payload { u64::from(item.length_high) << 32 } else { 0 };
        bytes.extend_from_slice(&encode(&RequestHead { length: head.length | high, ..head }));
        if has_payload {
            let payload = usize::from(item.length) / if item.short { 2 } else { 1 };
            bytes.resize(bytes.len() + payload, item.fill);
        }
    }
    let (mut client, server) = UnixStream::pair().expect("a pair of sockets");
    client.set_nonblocking(true).expect("non-blocking");
    server.set_nonblocking(true).expect("non-blocking");
    let mut contexts = ContextSet::default();
    if input.contexts && framing.has_chunks() {
        Context::ALL.into_iter().for_each(|context| contexts.insert(context));
    }
    let export = ExportInfo {
        name: "vm1".into(),
        size_bytes: SIZE,
        description: String::new(),
        read_only: input.read_only,
        request_bytes_max: 32 << 20,
    };
    let negotiated = Negotiated { client: Client::Local, export, framing, contexts, leftover: Vec::new() };
    let mut volume = MemoryVolume::new(SIZE, 100).expect("a small volume");
    volume.check_payloads();
    let frames = volume.frames_free();
    let mut scratch = Scratch::default();
    let mut connection = Connection::new(Channel::plain(server.into()), 1, negotiated, Instant(0));
    let mut answers = Vec::new();
    let mut rest = &bytes[..];
    let mut sink = vec![0; 1 << 16];
    let mut still = 0;
    for cut in input.cuts.iter().copied().chain(std::iter::repeat(u16::MAX)) {
        if still > 3 || connection.closed().is_some() {
            break;
        }
        let part = &rest[..rest.len().min(usize::from(cut) + 1)];
        let sent = client.write(part).unwrap_or(0);
        rest = &rest[sent..];
        still = if sent > 0 { 0 } else { still + 1 };
        connection.receive(&mut volume, &mut scratch, Instant(0));
        volume.take_answers(&mut answers);
        if !input.holds_answers {
            for (id, result) in answers.drain(..) {
                connection.reply(&mut volume, id, result);
            }
        }
        connection.flush_replies(&mut volume, &mut scratch, Instant(0));
        while matches!(client.read(&mut sink), Ok(n) if n > 0) {}
    }
    drop(client);
    connection.receive(&mut volume, &mut scratch, Instant(1));
    connection.close(&mut volume);
    volume.take_answers(&mut answers);
    for (id, result) in answers.drain(..) {
        connection.reply(&mut volume, id, result);
    }
    assert_eq!(volume.frames_free() + volume.frames_of_content(), frames, "a frame was lost");
});
