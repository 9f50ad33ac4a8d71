//! Decoders of frames and messages between nodes survive any bytes, also ones whose checksums are right.
#![no_main]

use arbitrary::Arbitrary;
use forebay_core::format::{DESCRIPTOR_BYTES, crc32c};
use forebay_core::wire::*;
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    head: [u8; HEAD_BYTES],
    /// Makes the magic and all checksums right, so that what lies behind them is reached.
    resealed: bool,
    body: &'a [u8],
}

/// Bytes of an append before its records: envelope, kind, positions and counts.
const APPEND_HEAD_BYTES: usize = 72 + 36;

/// Seals the records of an append, as `docs/protocol.md` has it.
fn reseal_records(body: &mut [u8]) {
    let Some((head, rest)) = body.split_at_mut_checked(APPEND_HEAD_BYTES) else { return };
    let volume: [u8; 16] = head[..16].try_into().expect("sixteen bytes");
    let from = u64::from_le_bytes(head[72..80].try_into().expect("eight bytes"));
    for (index, record) in rest.chunks_exact_mut(DESCRIPTOR_BYTES).enumerate() {
        record[13] %= 4;
        let mut seed = [0u8; 24];
        seed[..16].copy_from_slice(&volume);
        seed[16..].copy_from_slice(&(from.rotate_left(32) ^ index as u64).to_le_bytes());
        let sum = crc32c(&record[..28]) ^ crc32c(&seed);
        record[28..].copy_from_slice(&sum.to_le_bytes());
    }
}

fuzz_target!(|input: Input<'_>| {
    let Input { mut head, resealed, body } = input;
    let mut body = body.to_vec();
    if resealed {
        head[..2].copy_from_slice(b"Fb");
        head[24..28].copy_from_slice(&crc32c(&body).to_le_bytes());
        let sum = crc32c(&head[..28]);
        head[28..].copy_from_slice(&sum.to_le_bytes());
        if body.get(64) == Some(&2) {
            reseal_records(&mut body);
        }
    }
    if let Ok(found) = FrameHead::decode(&head) {
        assert_eq!(FrameHead::decode(&found.encode()), Ok(found));
        assert!(found.body_bytes <= BODY_BYTES_MAX && found.payload_bytes <= PAYLOAD_BYTES_MAX);
        if let Ok(frame) = ChannelFrame::decode(found.kind, &body) {
            let mut again = Vec::new();
            frame.encode(&mut again);
            assert_eq!(ChannelFrame::decode(found.kind, &again[HEAD_BYTES..]), Ok(frame));
        }
    }
    if let Ok((envelope, message)) = decode_message(&body) {
        assert!(payload_blocks(&message) <= PAYLOAD_BLOCKS_MAX);
        let mut again = Vec::new();
        encode_message(&envelope, &message, &mut again);
        assert_eq!(decode_message(&again), Ok((envelope, message)));
    }
});
