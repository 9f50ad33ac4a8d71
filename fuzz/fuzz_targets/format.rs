//! Decoders of the tier's format survive any block, also one whose checksums are right.
#![no_main]

use arbitrary::Arbitrary;
use forebay_core::format::*;
use forebay_core::types::TierBlock;
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
enum Structure {
    Superblock,
    Checkpoint,
    Descriptor,
    Batch,
    Summary,
}

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    structure: Structure,
    volume: [u8; 16],
    place: u32,
    /// Makes the magic and all checksums right, so that what lies behind them is reached.
    resealed: bool,
    count: u16,
    bytes: &'a [u8],
}

/// To this length, by repeating them: a structure full of records that all look alike is reached from few bytes.
fn repeated(bytes: &[u8], length: usize) -> Vec<u8> {
    if bytes.is_empty() { vec![0; length] } else { bytes.iter().copied().cycle().take(length).collect() }
}

/// The checksum as `docs/format.md` has it: over the bytes, mixed with volume and place.
fn structure_checksum(volume: &[u8; 16], place: u64, bytes: &[u8]) -> [u8; 4] {
    let mut seed = [0u8; 24];
    seed[..16].copy_from_slice(volume);
    seed[16..].copy_from_slice(&place.to_le_bytes());
    (crc32c(bytes) ^ crc32c(&seed)).to_le_bytes()
}

fn reseal(volume: &[u8; 16], place: u64, bytes: &mut [u8]) {
    bytes[12..16].fill(0);
    let sum = structure_checksum(volume, place, bytes);
    bytes[12..16].copy_from_slice(&sum);
}

/// What seals the descriptors inside: place and number of the structure, as `docs/format.md` has it.
fn inner_place(place: u32, number: &[u8]) -> u64 {
    u64::from(place) ^ u64::from_le_bytes(number.try_into().expect("eight bytes")).rotate_left(32)
}

fn reseal_descriptor(volume: &[u8; 16], place: u64, b: &mut [u8]) {
    b[13] = b[13] % 4;
    let sum = structure_checksum(volume, place, &b[..28]);
    b[28..32].copy_from_slice(&sum);
}

fuzz_target!(|input: Input<'_>| {
    let Input { structure, volume, place, resealed, count, bytes } = input;
    let at = TierBlock(place);
    if !resealed {
        let _ = Superblock::decode(bytes);
        let _ = Checkpoint::decode(Version::One, &volume, at, bytes);
        let _ = Checkpoint::decode(Version::Two, &volume, at, bytes);
        let _ = Descriptor::decode(&volume, u64::from(place), bytes);
        let _ = Batch::decode(&volume, at, bytes);
        let _ = Summary::decode(&volume, at, bytes);
        return;
    }
    match structure {
        Structure::Superblock => {
            let mut bytes = repeated(bytes, TIER_BLOCK_BYTES);
            bytes[..8].copy_from_slice(b"FOREBAY\0");
            let volume: [u8; 16] = bytes[16..32].try_into().expect("sixteen bytes");
            reseal(&volume, 0, &mut bytes);
            if let Ok(found) = Superblock::decode(&bytes) {
                assert_eq!(Superblock::decode(&found.encode()), Ok(found));
            }
        }
        Structure::Checkpoint => {
            let mut bytes = repeated(bytes, TIER_BLOCK_BYTES);
            bytes[..8].copy_from_slice(b"FBCKPT\0\0");
            let at = TierBlock(1 + place % 2);
            reseal(&volume, u64::from(at.0), &mut bytes);
            for version in [Version::One, Version::Two] {
                if let Ok(found) = Checkpoint::decode(version, &volume, at, &bytes) {
                    assert_eq!(found.place(), at);
                    let again = found.encode(version, &volume);
                    assert_eq!(Checkpoint::decode(version, &volume, at, &again), Ok(found));
                }
            }
        }
        Structure::Descriptor => {
            let mut bytes = repeated(bytes, DESCRIPTOR_BYTES);
            reseal_descriptor(&volume, u64::from(place), &mut bytes);
            if let Ok(Some(found)) = Descriptor::decode(&volume, u64::from(place), &bytes) {
                let again = found.encode(&volume, u64::from(place));
                assert_eq!(Descriptor::decode(&volume, u64::from(place), &again), Ok(Some(found)));
            }
        }
        Structure::Batch => {
            let mut bytes = repeated(bytes, TIER_BLOCK_BYTES);
            bytes[..8].copy_from_slice(b"FBBATCH\0");
            bytes[8..10].copy_from_slice(&(count % 200).to_le_bytes());
            let inner = inner_place(place, &bytes[24..32]);
            for record in bytes[BATCH_HEAD_BYTES..].chunks_exact_mut(DESCRIPTOR_BYTES) {
                reseal_descriptor(&volume, inner, record);
            }
            reseal(&volume, u64::from(place), &mut bytes);
            if let Ok(found) = Batch::decode(&volume, at, &bytes) {
                assert_eq!(Batch::decode(&volume, at, &found.encode(&volume, at)), Ok(found));
            }
        }
        Structure::Summary => {
            let blocks = 1 + place % 3;
            let mut bytes = repeated(bytes, blocks as usize * TIER_BLOCK_BYTES);
            bytes[..8].copy_from_slice(b"FBSUMM\0\0");
            bytes[8..12].copy_from_slice(&u32::from(count % 512).to_le_bytes());
            let inner = inner_place(place, &bytes[16..24]);
            for entry in bytes[SUMMARY_HEAD_BYTES..].chunks_exact_mut(SUMMARY_ENTRY_BYTES) {
                reseal_descriptor(&volume, inner, &mut entry[..DESCRIPTOR_BYTES]);
            }
            reseal(&volume, u64::from(place), &mut bytes);
            if let Ok(found) = Summary::decode(&volume, at, &bytes) {
                assert_eq!(Summary::decode(&volume, at, &found.encode(&volume, at, blocks)), Ok(found));
            }
        }
    }
});
