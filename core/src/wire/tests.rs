//! Golden bytes of every frame and of the messages with the most fields, and what a decoder must do with bytes that are
//! not what they should be.
//!
//! The hex literals were computed by a second implementation of `docs/protocol.md`, "Bytes on a link", not by the code
//! under test. They must never change within a version: neighbouring versions talk to each other.

use super::*;
use crate::cluster::*;
use crate::format::{Descriptor, Kind, TIER_BLOCK_BYTES, payload_checksum};
use crate::message::*;
use std::string::String;
use std::vec;

const VOLUME: [u8; 16] = *b"\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f";

const HELLO: &str = "\
    4662010090000000000000000000000000000000000000005cb04ffd53c2b0a346424c494e4b00000100010002000100c0c1\
    c2c3c4c5c6c7c8c9cacbcccdcecf08070605040302011817161514131211a0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3\
    b4b5b6b7b8b9babbbcbdbebf05616c7068610000000000000000000000000000000000000000000000000000000000000000\
    0000000000000000000000000000000000000000000000000000";
const FORWARD_HELLO: &str = "\
    46620100a000000000000000000000000000000000000000a61bff92fbfe819a46424c494e4b000001000100ffff0000c0c1\
    c2c3c4c5c6c7c8c9cacbcccdcecf08070605040302011817161514131211a0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3\
    b4b5b6b7b8b9babbbcbdbebf05616c7068610000000000000000000000000000000000000000000000000000000000000000\
    0000000000000000000000000000000000000000000000000000101112131415161718191a1b1c1d1e1f";
const ENTERED: &str = "\
    4662080018000000000000000000000000000000000000009e3e61e56cb53d29090000000000000000907856341200000000\
    000200000000";
const ACKNOWLEDGE: &str = "\
    4662050010000000000000000000000000000000000000006dc5151f600973d94d000000000000008967452301000000";
const REFUSAL: &str = "\
    466202000800000000000000000000000000000000000000c04d09e447d3debc0500000000000000";
const APPEND_HEAD: &str = "\
    4662040120010000d2040000001000002a00000000000000bd6fe7fa6a394fee";
const APPEND: &str = "\
    101112131415161718191a1b1c1d1e1f03000000070000000100000000000000aaaaaaaaaaaaaaaa00000000020000000000\
    0000bbbbbbbbbbbbbbbb040000000200000000000000e803000000000000eb03000000000000de03000000000000d4030000\
    0000000003000100e903000000000000050000000001ff000400000003000000933dfd06b3f6e8acea030000000000000600\
    000000020f000400000003000000000000006c4c313feb0300000000000010000000000301000400000003000000f0000000\
    a491377909000000000000008403000000000000b60300000000000000000080020000004000000000000000000100000100\
    0000020000000000000064000000000000007800000000000000000000000000000000000000";
const HELD: &str = "\
    101112131415161718191a1b1c1d1e1f03000000070000000100000000000000aaaaaaaaaaaaaaaa00000000020000000000\
    0000bbbbbbbbbbbbbbbb040000000400000000000000eb03000000000000ea03000000000000840300000000000009000000\
    000000008813000040000000a0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7b8b9babbbcbdbebf";
const SEALED: &str = "\
    101112131415161718191a1b1c1d1e1f03000000070000000100000000000000aaaaaaaaaaaaaaaa00000000020000000000\
    0000bbbbbbbbbbbbbbbb040000000800000000000000eb0300000000000009000000000000008403000000000000b6030000\
    0000000000000080020000004000000000000000000100000100000002000000000000006400000000000000780000000000\
    0000000000000000000000000000a0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7b8b9babbbcbdbebf";
const ASK: &str = "\
    101112131415161718191a1b1c1d1e1f03000000070000000100000000000000aaaaaaaaaaaaaaaa00000000020000000000\
    0000bbbbbbbbbbbbbbbb040000000f000000000000004d00000000000000050000000000000040000000";
const KNOWN: &str = "\
    101112131415161718191a1b1c1d1e1f03000000070000000100000000000000aaaaaaaaaaaaaaaa00000000020000000000\
    0000bbbbbbbbbbbbbbbb0400000012000000000000004f000000000000000100000002000000030000000200000005000000\
    000000000600000000000000";
const SAID: &str = "\
    101112131415161718191a1b1c1d1e1f03000000070000000100000000000000aaaaaaaaaaaaaaaa00000000020000000000\
    0000bbbbbbbbbbbbbbbb040000001300000000000000ea030000000000000900000000000000";
const CACHED: &str = "\
    101112131415161718191a1b1c1d1e1f03000000070000000100000000000000aaaaaaaaaaaaaaaa00000000020000000000\
    0000bbbbbbbbbbbbbbbb0400000010000000000000004d00000000000000e803000002000100000000000000050000000001\
    ff000400000003000000933dfd06e60cc1b60200000000000000090000000001ff0004000000030000005fbe1c496c9a2f1c";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| std::format!("{b:02x}")).collect()
}

fn counting(first: u8) -> [u8; 16] {
    core::array::from_fn(|i| first + i as u8)
}

fn host() -> Host {
    Host { machine: counting(0xa0), boot: counting(0xb0) }
}

fn hello() -> Hello {
    Hello {
        wire_min: 1,
        wire_max: 1,
        lane: 2,
        channel: 1,
        cluster: counting(0xc0),
        node: NodeId(0x0102_0304_0506_0708),
        session: 0x1112_1314_1516_1718,
        host: host(),
        name: NodeName::new("alpha").unwrap(),
        volume: None,
    }
}

/// Of a node that forwards.
fn forward_hello() -> Hello {
    Hello { lane: LANE_FORWARD, channel: 0, volume: Some(VOLUME), ..hello() }
}

fn entered() -> Entered {
    Entered { term: Term(9), size_bytes: 0x1234_5678_9000, request_bytes_max: 32 << 20 }
}

fn envelope() -> Envelope {
    Envelope {
        volume: VOLUME,
        term: Term(3),
        epoch: Epoch(7),
        from: Incarnation { node: NodeId(1), tier: 0xaaaa_aaaa_aaaa_aaaa, life: 0 },
        to: Incarnation { node: NodeId(2), tier: 0xbbbb_bbbb_bbbb_bbbb, life: 4 },
    }
}

fn mark() -> Mark {
    let pin = Pin { term: Term(2), above: Lsn(100), through: Lsn(120), part: Part::default() };
    Mark {
        number: MarkNumber(9),
        watermark: Lsn(900),
        through: Lsn(950),
        part: Part { block: BlockIndex(64), blocks: 0x100 },
        size_bytes: 10 << 30,
        pins: vec![pin],
    }
}

fn record(lsn: u64, block: u64, kind: Kind) -> Descriptor {
    Descriptor { lsn: Lsn(lsn), block: BlockIndex(block), group: Group(4), term: Term(3), kind }
}

fn append() -> Message {
    let frame: Vec<u8> = (0..TIER_BLOCK_BYTES).map(|i| (i * 7 + 3) as u8).collect();
    let checksum = payload_checksum(&VOLUME, BlockIndex(5), SectorMask::FULL, Term(3), &frame);
    Message::Log(LogMessage::Append {
        from: Lsn(1000),
        through: Lsn(1003),
        committed: Lsn(990),
        sync: Lsn(980),
        records: vec![
            record(1001, 5, Kind::Data { mask: SectorMask::FULL, checksum }),
            record(1002, 6, Kind::ZeroSectors { mask: SectorMask(0x0f) }),
            record(1003, 16, Kind::ZeroBlocks { blocks: 240, hole: true }),
        ],
        mark: Some(mark()),
    })
}

fn held() -> Message {
    Message::Log(LogMessage::Held(Held {
        accepted: Lsn(1003),
        held: Lsn(1002),
        synced: Some(Lsn(900)),
        mark: MarkNumber(9),
        room: Room { blocks: 5000, ranges: 64 },
        host: host(),
    }))
}

fn known() -> Message {
    Message::Ownership(OwnershipMessage::Known {
        sent: Instant(79),
        rewinds: Rewinds { open: vec![RewindId(0x0000_0002_0000_0003)], settled: vec![RewindId(5), RewindId(6)] },
    })
}

fn said() -> Message {
    Message::Log(LogMessage::Said { held: Lsn(1002), mark: MarkNumber(9) })
}

fn ask() -> Message {
    Message::Log(LogMessage::Ask { number: 77, first: BlockIndex(5), blocks: 64 })
}

fn cached() -> Message {
    let frame: Vec<u8> = (0..TIER_BLOCK_BYTES).map(|i| (i * 7 + 3) as u8).collect();
    let unsealed = Kind::Data { mask: SectorMask::FULL, checksum: 0 };
    let records = vec![record(1, 5, unsealed), record(2, 9, unsealed)];
    let mut message = Message::Log(LogMessage::Cached { number: 77, kept: 1000, records });
    seal_cached(&VOLUME, &mut message, |_| &frame);
    message
}

fn body(message: &Message) -> Vec<u8> {
    let mut out = Vec::new();
    encode_message(&envelope(), message, &mut out);
    out
}

fn encoded(frame: &ChannelFrame) -> Vec<u8> {
    let mut out = Vec::new();
    frame.encode(&mut out);
    out
}

/// As a receiver does it.
fn decoded(bytes: &[u8]) -> Result<ChannelFrame, Reason> {
    let (head, body) = bytes.split_first_chunk().ok_or("short")?;
    let head = FrameHead::decode(head)?;
    head.check_body(body)?;
    ChannelFrame::decode(head.kind, body)
}

/// One message of each kind.
fn one_of_each() -> Vec<Message> {
    vec![
        Message::Log(LogMessage::Begin { tail: Lsn(5), committed: Lsn(4), whole_from: Lsn(3), mark: mark() }),
        append(),
        Message::Log(LogMessage::Append {
            from: Lsn(9),
            through: Lsn(9),
            committed: Lsn(9),
            sync: Lsn(9),
            records: Vec::new(),
            mark: None,
        }),
        Message::Log(LogMessage::Mark(mark())),
        held(),
        Message::Log(LogMessage::Held(Held {
            accepted: Lsn(3),
            held: Lsn(2),
            synced: None,
            mark: MarkNumber(1),
            room: Room::default(),
            host: host(),
        })),
        said(),
        Message::Ownership(OwnershipMessage::Beacon { sent: Instant(77) }),
        Message::Ownership(OwnershipMessage::Granted { sent: Instant(78) }),
        Message::Ownership(OwnershipMessage::Seal),
        Message::Ownership(OwnershipMessage::Sealed { held: Lsn(1003), mark: mark(), host: host() }),
        Message::Log(LogMessage::Fetch { from: Lsn(12) }),
        Message::Ownership(OwnershipMessage::TakeOver),
        Message::Refused { why: Refusal::BeyondTail },
        Message::Ownership(OwnershipMessage::Who { sent: Instant(81) }),
        Message::Ownership(OwnershipMessage::Here { sent: Instant(82), at: Instant(83), host: host(), fresh: true }),
        Message::Ownership(OwnershipMessage::Here { sent: Instant(84), at: Instant(85), host: host(), fresh: false }),
        Message::Ownership(OwnershipMessage::Learn { sent: Instant(86), at: Instant(87) }),
        Message::Ownership(OwnershipMessage::Know {
            sent: Instant(88),
            rewinds: Rewinds { open: vec![RewindId(1)], settled: vec![] },
        }),
        known(),
        ask(),
        cached(),
        Message::Log(LogMessage::Cached { number: 78, kept: 0, records: Vec::new() }),
    ]
}

fn frames() -> Vec<ChannelFrame> {
    let mut frames = vec![
        ChannelFrame::Hello(hello()),
        ChannelFrame::Hello(forward_hello()),
        ChannelFrame::Entered(entered()),
        ChannelFrame::Start { first: 12 },
        ChannelFrame::Acknowledge { received: 77, bytes: 0x1_2345_6789 },
        ChannelFrame::Ping { sent: Instant(5) },
        ChannelFrame::Pong { sent: Instant(6) },
    ];
    frames.extend(Rejection::ALL.iter().map(|(why, _)| ChannelFrame::Refusal(*why)));
    frames
}

fn xorshift(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn frames_of_the_channel_have_their_golden_bytes() {
    let golden = [
        (HELLO, ChannelFrame::Hello(hello())),
        (FORWARD_HELLO, ChannelFrame::Hello(forward_hello())),
        (ENTERED, ChannelFrame::Entered(entered())),
        (ACKNOWLEDGE, ChannelFrame::Acknowledge { received: 77, bytes: 0x1_2345_6789 }),
        (REFUSAL, ChannelFrame::Refusal(Rejection::NotWhoWasCalled)),
    ];
    for (golden, frame) in golden {
        let bytes = encoded(&frame);
        assert_eq!(hex(&bytes), golden);
        assert_eq!(decoded(&bytes), Ok(frame));
    }
}

#[test]
fn messages_have_their_golden_bytes() {
    let sealed = Message::Ownership(OwnershipMessage::Sealed { held: Lsn(1003), mark: mark(), host: host() });
    let messages = [
        (APPEND, append()),
        (HELD, held()),
        (SEALED, sealed),
        (ASK, ask()),
        (CACHED, cached()),
        (KNOWN, known()),
        (SAID, said()),
    ];
    for (golden, message) in messages {
        let bytes = body(&message);
        assert_eq!(hex(&bytes), golden);
        assert_eq!(decode_message(&bytes), Ok((envelope(), message)));
    }
    let head = FrameHead::of_message(42, &body(&append()), Packing::Lz4, 1234, 4096);
    assert_eq!(hex(&head.encode()), APPEND_HEAD);
    assert_eq!(FrameHead::decode(&head.encode()), Ok(head));
}

#[test]
fn whatever_is_encoded_is_decoded_to_the_same() {
    for message in one_of_each() {
        assert_eq!(decode_message(&body(&message)), Ok((envelope(), message)));
    }
    for frame in frames() {
        assert_eq!(decoded(&encoded(&frame)), Ok(frame));
    }
    let mut state = 0x9e37_79b9_7f4a_7c15;
    for _ in 0..500 {
        let message = random_append(&mut state);
        assert_eq!(decode_message(&body(&message)), Ok((envelope(), message)));
    }
}

/// A peer may lie, and what follows from such numbers ends a daemon, or spoils the tier for its next start.
#[test]
fn what_no_volume_has_is_refused() {
    let far = POSITION_MAX + 1;
    let marks = [
        Mark { size_bytes: u64::MAX, ..mark() },
        Mark { size_bytes: VOLUME_BYTES_MAX + SECTOR_BYTES, ..mark() },
        Mark { size_bytes: 513, ..mark() },
        Mark { size_bytes: 0, ..mark() },
        Mark { number: MarkNumber(far), ..mark() },
        Mark { watermark: Lsn(far), ..mark() },
        Mark { through: Lsn(far), ..mark() },
        Mark { part: Part { block: BlockIndex(u64::MAX), blocks: 1 }, ..mark() },
        Mark { pins: vec![Pin { term: Term(2), above: Lsn(9), through: Lsn(8), part: Part::default() }], ..mark() },
        Mark { pins: vec![Pin { term: Term(2), above: Lsn(9), through: Lsn(far), part: Part::default() }], ..mark() },
    ];
    for mark in marks {
        assert!(decode_message(&body(&Message::Log(LogMessage::Mark(mark.clone())))).is_err(), "{mark:?}");
    }
    let messages = [
        Message::Log(LogMessage::Begin { tail: Lsn(u64::MAX), committed: Lsn(4), whole_from: Lsn(3), mark: mark() }),
        Message::Log(LogMessage::Fetch { from: Lsn(far) }),
        Message::Ownership(OwnershipMessage::Sealed { held: Lsn(far), mark: mark(), host: host() }),
        Message::Log(LogMessage::Said { held: Lsn(far), mark: MarkNumber(1) }),
        Message::Log(LogMessage::Said { held: Lsn(1), mark: MarkNumber(far) }),
    ];
    for message in messages {
        assert!(decode_message(&body(&message)).is_err(), "{message:?}");
    }
}

fn random_append(state: &mut u64) -> Message {
    let from = xorshift(state) >> 8;
    let mut last = from;
    let mut records = Vec::new();
    for _ in 0..xorshift(state) % 200 {
        last += 1 + xorshift(state) % 3;
        let kind = match xorshift(state) % 3 {
            0 => Kind::Data { mask: SectorMask((xorshift(state) as u8).max(1)), checksum: xorshift(state) as u32 },
            1 => Kind::ZeroSectors { mask: SectorMask((xorshift(state) as u8).max(1)) },
            _ => Kind::ZeroBlocks { blocks: (xorshift(state) as u32).max(1), hole: xorshift(state).is_multiple_of(2) },
        };
        records.push(record(last, xorshift(state) >> 24, kind));
    }
    let through = Lsn(last + xorshift(state) % 4);
    let mark = (xorshift(state).is_multiple_of(2)).then(mark);
    Message::Log(LogMessage::Append {
        from: Lsn(from),
        through,
        committed: Lsn(xorshift(state) >> 2),
        sync: Lsn(last),
        records,
        mark,
    })
}

#[test]
fn a_changed_bit_anywhere_is_refused() {
    let bytes = encoded(&ChannelFrame::Acknowledge { received: 77, bytes: 5 });
    for bit in 0..bytes.len() * 8 {
        let mut bytes = bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(decoded(&bytes).is_err(), "bit {bit}");
    }
}

#[test]
fn any_bytes_are_a_value_or_a_reason() {
    let mut state = 1;
    for message in one_of_each() {
        let good = body(&message);
        for length in 0..good.len() {
            assert!(decode_message(&good[..length]).is_err(), "{message:?} cut to {length}");
        }
        for _ in 0..2000 {
            let mut bytes = good.clone();
            let at = xorshift(&mut state) as usize % bytes.len();
            bytes[at] = xorshift(&mut state) as u8;
            if let Ok((envelope, message)) = decode_message(&bytes) {
                let mut again = Vec::new();
                encode_message(&envelope, &message, &mut again);
                assert_eq!(decode_message(&again), Ok((envelope, message)));
            }
        }
    }
}

#[test]
fn records_that_have_changed_places_are_refused() {
    let mut bytes = body(&append());
    let first = message::ENVELOPE_BYTES + 36;
    let (one, two) = bytes[first..first + 64].split_at_mut(32);
    one.swap_with_slice(two);
    assert_eq!(decode_message(&bytes), Err("descriptor: checksum mismatch"));
}

#[test]
fn a_record_of_another_volume_is_refused() {
    let mut bytes = body(&append());
    bytes[0] ^= 1;
    assert_eq!(decode_message(&bytes), Err("descriptor: checksum mismatch"));
}

#[test]
fn positions_out_of_order_are_refused() {
    let with = |from: u64, through: u64, sync: u64, lsns: &[u64]| {
        let records = lsns.iter().map(|&lsn| record(lsn, 1, Kind::ZeroBlocks { blocks: 1, hole: false })).collect();
        let (from, through, sync) = (Lsn(from), Lsn(through), Lsn(sync));
        decode_message(&body(&Message::Log(LogMessage::Append {
            from,
            through,
            committed: Lsn(0),
            sync,
            records,
            mark: None,
        })))
    };
    assert!(with(5, 9, 9, &[6, 9]).is_ok());
    for (from, through, sync, lsns) in
        [(9, 5, 0, &[][..]), (5, 9, 10, &[]), (5, 9, 9, &[5]), (5, 9, 9, &[10]), (5, 9, 9, &[7, 7]), (5, 9, 9, &[8, 7])]
    {
        assert!(with(from, through, sync, lsns).is_err(), "{from} {through} {sync} {lsns:?}");
    }
}

#[test]
fn lengths_are_refused_before_anything_is_kept_for_them() {
    let good = FrameHead::of_message(1, &body(&append()), Packing::Plain, 4096, 4096);
    assert!(FrameHead::decode(&good.encode()).is_ok());
    let max = PAYLOAD_BYTES_MAX;
    for wrong in [
        FrameHead { body_bytes: BODY_BYTES_MAX + 1, ..good },
        FrameHead { body_bytes: 71, ..good },
        FrameHead { payload_bytes: max + 4096, unpacked_bytes: max + 4096, ..good },
        FrameHead { payload_bytes: 4095, ..good },
        FrameHead { payload_bytes: 4095, unpacked_bytes: 4095, ..good },
        FrameHead { packing: Packing::Lz4, ..good },
        FrameHead { packing: Packing::Zstd, payload_bytes: 0, ..good },
        FrameHead { packing: Packing::Lz4, payload_bytes: 5, unpacked_bytes: 0, ..good },
        FrameHead { sequence: 0, ..good },
        FrameHead { kind: FrameKind::Acknowledge, ..good },
        FrameHead { kind: FrameKind::Hello, body_bytes: 2000, payload_bytes: 0, unpacked_bytes: 0, ..good },
        FrameHead {
            kind: FrameKind::Ping,
            body_bytes: 8,
            payload_bytes: 4096,
            unpacked_bytes: 4096,
            sequence: 0,
            ..good
        },
    ] {
        assert!(FrameHead::decode(&wrong.encode()).is_err(), "{wrong:?}");
    }
}

#[test]
fn a_full_append_fits() {
    let kind = |i: u64| match i < PAYLOAD_BLOCKS_MAX as u64 {
        true => Kind::Data { mask: SectorMask::FULL, checksum: 7 },
        false => Kind::ZeroBlocks { blocks: 1, hole: true },
    };
    let records: Vec<Descriptor> = (0..RECORDS_MAX as u64).map(|i| record(i + 1, i, kind(i))).collect();
    let pins = vec![mark().pins[0]; PINS_MAX];
    let through = Lsn(RECORDS_MAX as u64);
    let mark = Some(Mark { pins, ..mark() });
    let message =
        Message::Log(LogMessage::Append { from: Lsn(0), through, committed: Lsn(0), sync: Lsn(0), records, mark });
    assert_eq!(payload_blocks(&message), PAYLOAD_BLOCKS_MAX);
    let body = body(&message);
    assert!(body.len() <= BODY_BYTES_MAX as usize);
    assert_eq!(decode_message(&body), Ok((envelope(), message)));
}

#[test]
fn neighbouring_versions_agree_on_the_newest_that_both_speak() {
    let speaks = |wire_min, wire_max| Hello { wire_min, wire_max, ..hello() };
    for (ours, theirs, agreed) in [
        ((1, 1), (1, 1), Ok(1)),
        ((1, 2), (1, 1), Ok(1)),
        ((1, 2), (2, 3), Ok(2)),
        ((2, 3), (1, 2), Ok(2)),
        ((2, 3), (1, 1), Err(Rejection::NoCommonVersion)),
        ((1, 1), (2, 3), Err(Rejection::NoCommonVersion)),
    ] {
        assert_eq!(speaks(ours.0, ours.1).version_with(&speaks(theirs.0, theirs.1)), agreed);
    }
}

#[test]
fn a_hello_of_a_later_version_is_understood() {
    let mut body = Vec::new();
    Hello { wire_max: 9, ..hello() }.put(&mut body);
    assert_eq!(body.len(), HELLO_BYTES);
    body.extend_from_slice(b"a field that this version does not know");
    let found = ChannelFrame::decode(FrameKind::Hello, &body);
    assert_eq!(found, Ok(ChannelFrame::Hello(Hello { wire_max: 9, ..hello() })));
}

/// What is taken as seen is durable, and what comes after it must have a number.
#[test]
fn terms_and_configs_that_no_volume_reaches_are_refused() {
    let highest = Envelope { term: TERM_MAX, epoch: EPOCH_MAX, ..envelope() };
    let above = [Envelope { term: Term(TERM_MAX.0 + 1), ..highest }, Envelope { epoch: Epoch(u32::MAX), ..highest }];
    for message in one_of_each() {
        let decoded = |envelope: &Envelope| {
            let mut bytes = Vec::new();
            encode_message(envelope, &message, &mut bytes);
            decode_message(&bytes)
        };
        assert_eq!(decoded(&highest), Ok((highest, message.clone())));
        assert!(above.iter().all(|envelope| decoded(envelope).is_err()), "{message:?}");
    }
}

#[test]
fn who_forwards_names_the_volume() {
    let mut body = Vec::new();
    forward_hello().put(&mut body);
    assert_eq!(body.len(), HELLO_BYTES + 16);
    assert!(ChannelFrame::decode(FrameKind::Hello, &body[..HELLO_BYTES]).is_err());
    for field in [0, 16] {
        let mut body = encoded(&ChannelFrame::Entered(entered()))[HEAD_BYTES..].to_vec();
        body[field + 4] = 1;
        assert!(ChannelFrame::decode(FrameKind::Entered, &body).is_err(), "more than 32 bits at {field}");
    }
}

#[test]
fn names_are_what_certificates_can_name() {
    for good in ["a", "alpha-1", "node_2", &"n".repeat(63)] {
        assert_eq!(NodeName::new(good).unwrap().as_str(), good);
    }
    for bad in ["", "two words", "dot.ted", "Alpha", "ümlaut", "line\n", &"n".repeat(64)] {
        assert!(NodeName::new(bad).is_err(), "{bad}");
    }
    let mut body = Vec::new();
    hello().put(&mut body);
    for (at, byte) in [(80, 0), (80, 64), (80, 4), (80, 6), (81, b' '), (81, 0xff), (143, b'x')] {
        let mut body = body.clone();
        body[at] = byte;
        assert!(ChannelFrame::decode(FrameKind::Hello, &body).is_err(), "byte {at} = {byte}");
    }
}
