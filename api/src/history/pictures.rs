//! Pictures: what a volume has measured in five minutes, with all its histograms, so that a percentile, a heat map or a
//! miss-ratio curve of any time is that of its requests, and no mean of means.
//!
//! A picture is some thousand numbers of which most are zero: a record of varying length. This is its bytes, which
//! `docs/format.md` has one by one; the daemon has the files.

use super::format::Owner;
use forebay_core::format::crc32c;
use forebay_core::stats::Stats;

/// How many seconds a picture stands for.
pub const PICTURE_S: u64 = 300;
/// Bytes of a picture; all its numbers with as many bytes as they can have are fewer.
pub const PICTURE_BYTES_MAX: usize = 64 << 10;
const HEAD: usize = 32;
const VERSION: u16 = 1;
/// More numbers than a picture has: where a later version adds some, they are passed over.
const NUMBERS_MAX: usize = 16 << 10;

/// What was measured in a time.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    /// It begins with this second, since 1970.
    pub from: u64,
    /// It ends before this second, since 1970.
    pub to: u64,
    /// What was measured between the two.
    pub seen: Stats,
}

/// The bytes of a picture; `place`: where it goes in its file.
pub fn encode(owner: &Owner, picture: &Picture, place: u64) -> Vec<u8> {
    let mut bytes = vec![0; HEAD];
    let mut zeros = 0u64;
    for number in picture.seen.numbers() {
        if number == 0 {
            zeros += 1;
            continue;
        }
        if zeros > 0 {
            bytes.push(0);
            put_number(&mut bytes, zeros);
            zeros = 0;
        }
        put_number(&mut bytes, number);
    }
    bytes[..4].copy_from_slice(b"FBPI");
    let length = bytes.len() as u32;
    bytes[4..8].copy_from_slice(&length.to_le_bytes());
    bytes[12..14].copy_from_slice(&VERSION.to_le_bytes());
    bytes[16..24].copy_from_slice(&picture.from.to_le_bytes());
    bytes[24..32].copy_from_slice(&picture.to.to_le_bytes());
    let sum = checksum(owner, place, &bytes);
    bytes[8..12].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// The picture at the begin of some bytes, and how many are its own; none where there is none, or a torn one.
pub fn decode(owner: &Owner, bytes: &[u8], place: u64) -> Option<(Picture, usize)> {
    let head = bytes.get(..HEAD)?;
    let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("4 bytes"));
    let long = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("8 bytes"));
    let length = word(4) as usize;
    if &head[..4] != b"FBPI" || !(HEAD..=PICTURE_BYTES_MAX).contains(&length) {
        return None;
    }
    let bytes = bytes.get(..length)?;
    let mut summed = bytes.to_vec();
    summed[8..12].fill(0);
    if checksum(owner, place, &summed) != word(8) || word(12) as u16 != VERSION {
        return None;
    }
    let mut rest = &bytes[HEAD..];
    let mut numbers = Vec::new();
    while !rest.is_empty() && numbers.len() < NUMBERS_MAX {
        match take_number(&mut rest)? {
            0 => {
                let zeros = take_number(&mut rest)?.min((NUMBERS_MAX - numbers.len()) as u64);
                numbers.resize(numbers.len() + zeros as usize, 0);
            }
            number => numbers.push(number),
        }
    }
    let seen = Stats::of_numbers(numbers.into_iter());
    Some((Picture { from: long(16), to: long(24), seen }, length))
}

fn checksum(owner: &Owner, place: u64, bytes: &[u8]) -> u32 {
    let mut seed = [0; 24];
    seed[..16].copy_from_slice(&owner.id);
    seed[16..].copy_from_slice(&place.to_le_bytes());
    crc32c(bytes) ^ crc32c(&seed)
}

/// Seven bits a byte, the lowest first; the eighth says that more follow.
fn put_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// Adds a newer one. Distances of another cache, or of another sampling, do not add up: those of the newest count.
pub fn add(all: &mut Option<Picture>, picture: Picture) {
    let Some(sum) = all else {
        *all = Some(picture);
        return;
    };
    (sum.from, sum.to) = (sum.from.min(picture.from), sum.to.max(picture.to));
    let shape = |seen: &Stats| (seen.miss_ratio.cache_bytes(), seen.miss_ratio.deepest_bytes());
    let same = shape(&sum.seen) == shape(&picture.seen);
    sum.seen.merge(&picture.seen);
    if !same {
        sum.seen.miss_ratio = picture.seen.miss_ratio;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::types::Duration;

    const US: Owner = Owner { kind: 1, id: *b"0123456789abcdef" };

    #[test]
    fn pictures_have_their_golden_bytes() {
        let mut seen = Stats::new(0);
        seen.reads.client.record_many(Duration::from_micros(3), 300);
        let bytes = encode(&US, &Picture { from: 1_700_000_100, to: 1_700_000_400, seen }, 4096);
        assert_eq!(&bytes[..8], b"FBPI\x2e\0\0\0");
        assert_eq!(&bytes[12..32], b"\x01\0\0\0\x64\xf1\x53\x65\0\0\0\0\x90\xf2\x53\x65\0\0\0\0");
        // 900000 ns; three zeros; 300 in the class below 4 us; zeros; stride 16, and the deepest.
        assert_eq!(&bytes[32..], b"\xa0\xf7\x36\0\x03\xac\x02\0\xf0\x1b\x10\x80\x80\x08");
        assert_eq!(u32::from_le_bytes(bytes[8..12].try_into().unwrap()), GOLDEN_SUM);
    }

    // Computed by a second implementation of the format's page.
    const GOLDEN_SUM: u32 = 0x5031_009f;

    #[test]
    fn a_picture_comes_back_and_a_damaged_one_or_one_of_elsewhere_is_none() {
        let mut seen = Stats::new(1000);
        seen.writes.client.record_many(Duration::from_micros(100), 7);
        seen.heat.read(4096, Duration::from_micros(100));
        let picture = Picture { from: 600, to: 900, seen };
        let bytes = encode(&US, &picture, 77);
        assert_eq!(decode(&US, &bytes, 77), Some((picture, bytes.len())));
        assert_eq!(decode(&US, &bytes, 78), None);
        assert_eq!(decode(&Owner { kind: 1, id: [7; 16] }, &bytes, 77), None);
        for byte in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[byte] ^= 0x10;
            assert_eq!(decode(&US, &damaged, 77), None, "byte {byte}");
            assert_eq!(decode(&US, &bytes[..byte], 77), None, "cut at {byte}");
        }
    }

    #[test]
    fn curves_of_different_caches_do_not_add_up() {
        let mut all = None;
        let with = |cache_blocks, reads| {
            let mut seen = Stats::new(cache_blocks);
            let mut sampler = forebay_core::stats::ReuseSampler::new(&seen.miss_ratio);
            (0..reads).for_each(|block| {
                sampler.read(&mut seen.miss_ratio, forebay_core::types::BlockIndex(block), 1);
            });
            Picture { from: 0, to: 300, seen }
        };
        for picture in [with(1 << 20, 1000), with(1 << 30, 50), with(1 << 30, 20)] {
            add(&mut all, picture);
        }
        let curve = all.unwrap().seen.miss_ratio;
        assert_eq!((curve.cache_bytes(), curve.blocks_read()), (4 << 40, 70));
    }
}
