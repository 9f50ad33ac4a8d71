//! What clients write: bytes that say by which write, and for which place, they were made.
//!
//! Every 8-byte cell of the volume holds [`mix`]`(write << 32 | cell)`. A cell found anywhere can be taken apart again,
//! so a misplaced or stale sector names itself in the report; and single bytes differ between writes, so the
//! unaligned edges of a write are checked too.

use crate::random::{mix, unmix};

/// Bytes of a cell.
const CELL_BYTES: u64 = 8;

fn cell(write: u32, index: u64) -> [u8; 8] {
    mix(u64::from(write) << 32 | index).to_le_bytes()
}

/// Fills `bytes`, which lie at `offset` in the volume, with what `write` puts there.
pub fn fill(write: u32, offset: u64, bytes: &mut [u8]) {
    let mut at = 0;
    while at < bytes.len() {
        let place = offset + at as u64;
        let within = (place % CELL_BYTES) as usize;
        let length = (CELL_BYTES as usize - within).min(bytes.len() - at);
        bytes[at..at + length].copy_from_slice(&cell(write, place / CELL_BYTES)[within..within + length]);
        at += length;
    }
}

/// True when `bytes`, which lie at `offset`, are what `write` puts there. Called for every sector of an image again and again: whole
/// cells are compared at once.
pub fn matches(write: u32, offset: u64, bytes: &[u8]) -> bool {
    let first = offset.div_ceil(CELL_BYTES);
    let edge = (first * CELL_BYTES - offset) as usize;
    let (head, rest) = bytes.split_at(edge.min(bytes.len()));
    let (cells, tail) = rest.as_chunks::<8>();
    let part = |index: u64, from: usize, bytes: &[u8]| {
        bytes.is_empty() || *bytes == cell(write, index)[from..from + bytes.len()]
    };
    part(offset / CELL_BYTES, (offset % CELL_BYTES) as usize, head)
        && (first..).zip(cells).all(|(index, found)| *found == cell(write, index))
        && part(first + cells.len() as u64, 0, tail)
}

/// True when there is nothing but zeros. As often as [`matches()`], so by as much at a time as a comparison takes.
pub fn is_zero(bytes: &[u8]) -> bool {
    let (wide, tail) = bytes.as_chunks::<32>();
    wide.iter().all(|chunk| *chunk == [0; 32]) && tail.iter().all(|&byte| byte == 0)
}

/// Says for a person what bytes found at `offset` are.
pub fn explain(offset: u64, bytes: &[u8]) -> String {
    if is_zero(bytes) {
        return "zeros".into();
    }
    let skip = (CELL_BYTES - offset % CELL_BYTES) % CELL_BYTES;
    let mut found: Vec<String> = Vec::new();
    let mut at = skip as usize;
    while at + 8 <= bytes.len() {
        let word = u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let place = offset + at as u64;
        let origin = unmix(word);
        let (write, index) = (origin >> 32, origin & 0xffff_ffff);
        let text = if word == 0 {
            "zeros".to_string()
        } else if index == place / CELL_BYTES {
            format!("write {write}")
        } else if index < 1 << 24 && write < 1 << 24 {
            format!("write {write} of byte {} (misplaced)", index * CELL_BYTES)
        } else {
            format!("no client's bytes ({word:#018x})")
        };
        if found.last() != Some(&text) && found.len() < 4 {
            found.push(text);
        }
        at += 8;
    }
    if found.is_empty() {
        return format!("{bytes:02x?}");
    }
    found.join(", then ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_slice_of_a_write_matches_it_and_no_other() {
        let mut bytes = vec![0; 600];
        fill(9, 4096, &mut bytes);
        assert!(matches(9, 4096 + 3, &bytes[3..599]));
        assert!(!matches(8, 4096 + 3, &bytes[3..599]));
        assert!(!matches(9, 4096 + 4, &bytes[3..599]));
        for (from, to) in (0..20).flat_map(|from| (from..60).map(move |to| (from, to))) {
            assert!(matches(9, 4096 + from as u64, &bytes[from..to]), "{from} to {to}");
            for changed in from..to {
                let mut other = bytes[from..to].to_vec();
                other[changed - from] ^= 1;
                assert!(!matches(9, 4096 + from as u64, &other), "{from} to {to}: byte {changed}");
            }
        }
        assert_eq!(explain(4096 + 3, &bytes[3..]), "write 9");
        assert_eq!(explain(0, &bytes[..8]), "write 9 of byte 4096 (misplaced)");
    }

    #[test]
    fn one_byte_that_is_no_zero_is_seen_wherever_it_lies() {
        for length in 0..70 {
            let mut bytes = vec![0; length];
            assert!(is_zero(&bytes));
            for at in 0..length {
                bytes[at] = 1;
                assert!(!is_zero(&bytes), "byte {at} of {length}");
                bytes[at] = 0;
            }
        }
    }
}
