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

/// True when `bytes`, which lie at `offset`, are what `write` puts there. Half of a run's time is spent here: so whole cells are
/// compared as numbers.
pub fn matches(write: u32, offset: u64, bytes: &[u8]) -> bool {
    let edge = (offset.next_multiple_of(CELL_BYTES) - offset) as usize;
    let (head, rest) = bytes.split_at(edge.min(bytes.len()));
    let (cells, tail) = rest.as_chunks::<8>();
    let first = offset.div_ceil(CELL_BYTES);
    let after = first + cells.len() as u64;
    (first..).zip(cells).all(|(index, found)| *found == cell(write, index))
        && (tail.is_empty() || *tail == cell(write, after)[..tail.len()])
        && (head.is_empty() || {
            let within = (offset % CELL_BYTES) as usize;
            *head == cell(write, offset / CELL_BYTES)[within..within + head.len()]
        })
}

/// As [`matches()`] does, in steps.
pub fn is_zero(bytes: &[u8]) -> bool {
    let (cells, tail) = bytes.as_chunks::<32>();
    cells.iter().all(|cell| *cell == [0; 32]) && tail.iter().all(|&byte| byte == 0)
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
        assert_eq!(explain(4096 + 3, &bytes[3..]), "write 9");
        assert_eq!(explain(0, &bytes[..8]), "write 9 of byte 4096 (misplaced)");
    }
}
