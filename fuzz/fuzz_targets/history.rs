//! Slots, headers and pictures of the history survive any bytes, also ones whose checksums are right.
#![no_main]

use arbitrary::Arbitrary;
use forebay_api::history::format::{self, Owner, RINGS};
use forebay_api::history::pictures;
use forebay_core::format::crc32c;
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    id: [u8; 16],
    ring: u8,
    at: u32,
    place: u32,
    /// Makes magic, length and checksums right, so that what lies behind them is reached.
    resealed: bool,
    bytes: &'a [u8],
}

/// The checksum as `docs/format.md` has it: over the bytes with its field zeroed, mixed with identity and place.
fn seal(id: &[u8; 16], place: u64, bytes: &mut [u8], field: usize) {
    bytes[field..field + 4].fill(0);
    let mut seed = [0; 24];
    seed[..16].copy_from_slice(id);
    seed[16..].copy_from_slice(&place.to_le_bytes());
    let sum = crc32c(bytes) ^ crc32c(&seed);
    bytes[field..field + 4].copy_from_slice(&sum.to_le_bytes());
}

fuzz_target!(|input: Input<'_>| {
    let Input { id, ring, at, place, resealed, bytes } = input;
    let owner = Owner { kind: 1, id };
    let _ = format::decode_header(bytes);

    let ring = &RINGS[usize::from(ring) % RINGS.len()];
    let at = ring.begin(u64::from(at));
    let mut slot = bytes.to_vec();
    if resealed {
        slot.resize(ring.slot_bytes(), 0xff);
        slot[..8].copy_from_slice(&at.to_le_bytes());
        seal(&id, ring.place(at), &mut slot, 8);
    }
    if let Some(found) = format::decode_slot(&owner, ring, at, &slot) {
        let figures = [found.avg, found.min, found.max].concat();
        assert!(figures.iter().all(|value| value.is_nan() || value.is_finite() && *value >= 0.0));
        let mut again = vec![0; ring.slot_bytes()];
        format::encode_slot(&owner, ring, &found, format::SERIES_MAX, &mut again);
        let back = format::decode_slot(&owner, ring, at, &again).expect("what was just encoded");
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        assert_eq!((bits(&back.avg), back.at, back.seconds), (bits(&found.avg), found.at, found.seconds));
    } else {
        assert!(!resealed, "a sealed slot is taken");
    }

    let mut picture = bytes.to_vec();
    if resealed {
        picture.resize(picture.len().max(32), 0);
        picture[..4].copy_from_slice(b"FBPI");
        let length = picture.len() as u32;
        picture[4..8].copy_from_slice(&length.to_le_bytes());
        picture[12..14].copy_from_slice(&1u16.to_le_bytes());
        seal(&id, u64::from(place), &mut picture, 8);
    }
    if let Some((found, length)) = pictures::decode(&owner, &picture, u64::from(place)) {
        assert!(length <= picture.len());
        let again = pictures::encode(&owner, &found, 5);
        assert!(again.len() <= pictures::PICTURE_BYTES_MAX, "what can be decoded can be kept");
        assert_eq!(pictures::decode(&owner, &again, 5).map(|(picture, _)| picture), Some(found.clone()));
        // As many as a window can have add up, and are asked for all that is shown of them.
        let mut all = None;
        for _ in 0..3 {
            pictures::add(&mut all, found.clone());
        }
        let seen = all.expect("three were added").seen;
        let _ = (seen.miss_ratio.hit_ratio(1 << 40), seen.miss_ratio.working_set_bytes());
        let _ = (seen.reads.client.percentile(99.0), seen.reads.client.mean_us(), seen.minus(&found.seen));
    }
});
