//! Bytes of a history file: encode and decode, nothing else. `docs/format.md` has them byte by byte.
//!
//! A slot's place follows from its time alone, so there is no head to keep: what a kill or a power cut leaves is whole
//! slots and slots that fail their checksum, which count as never written. A clock that was set back writes over the
//! same seconds again; the newest account of a second is the one that is kept.

use forebay_core::format::crc32c;

/// Version of the files that this code writes, and the only one there has been.
pub const VERSION: u16 = 1;
/// The header's block.
pub const HEADER_BYTES: usize = 4096;
/// Most series of a slot.
pub const SERIES_MAX: usize = 60;
/// Bytes of a slot of the finest ring: a figure for each series.
const FINE_SLOT_BYTES: usize = 16 + SERIES_MAX * 4;
/// Bytes of a slot of the others: mean, smallest and largest.
const COARSE_SLOT_BYTES: usize = 16 + SERIES_MAX * (4 + 2 + 2);
/// Largest of both.
pub const SLOT_BYTES_MAX: usize = COARSE_SLOT_BYTES;

const MAGIC: &[u8; 8] = b"FBHIST\0\0";
const HEADER_SUM: usize = 12;
const SLOT_SUM: usize = 8;
/// In place of a figure that there is not.
const NONE: u32 = u32::MAX;
const NONE_SHORT: u16 = u16::MAX;

/// A ring of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    /// Seconds that a slot stands for.
    pub step_s: u32,
    /// How many slots the ring has.
    pub slots: u32,
    /// Where it begins in the file.
    pub offset: u64,
}

impl Ring {
    const fn after(before: Option<Ring>, step_s: u32, slots: u32) -> Ring {
        let offset = match before {
            Some(before) => before.offset + before.slots as u64 * before.slot_bytes() as u64,
            None => HEADER_BYTES as u64,
        };
        Ring { step_s, slots, offset }
    }

    /// Bytes of one slot.
    pub const fn slot_bytes(&self) -> usize {
        if self.step_s == 1 { FINE_SLOT_BYTES } else { COARSE_SLOT_BYTES }
    }

    /// Seconds that it reaches back.
    pub const fn span_s(&self) -> u64 {
        self.step_s as u64 * self.slots as u64
    }

    /// The beginning of the step that a second lies in.
    pub const fn begin(&self, second: u64) -> u64 {
        second - second % self.step_s as u64
    }

    /// Where the slot of a step lies in the file.
    pub const fn place(&self, at: u64) -> u64 {
        self.offset + at / self.step_s as u64 % self.slots as u64 * self.slot_bytes() as u64
    }
}

/// The rings of a file, from fine to coarse: 1 s for an hour, 10 s for a day, a minute for a week, 10 minutes for 60 days.
pub const RINGS: [Ring; 4] = {
    let seconds = Ring::after(None, 1, 3600);
    let tens = Ring::after(Some(seconds), 10, 8640);
    let minutes = Ring::after(Some(tens), 60, 10080);
    [seconds, tens, minutes, Ring::after(Some(minutes), 600, 8640)]
};

/// Bytes of a whole file: header and all rings, which never grow.
pub const FILE_BYTES: u64 = {
    let last = RINGS[3];
    last.offset + last.slots as u64 * last.slot_bytes() as u64
};

/// Whose history a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// 1: a volume, 2: a node.
    pub kind: u8,
    /// The volume's identity; of a node zeros.
    pub id: [u8; 16],
}

impl Owner {
    /// The owner of the file of the volume with this identity.
    pub fn volume(id: [u8; 16]) -> Owner {
        Owner { kind: 1, id }
    }

    /// The owner of the node's own file.
    pub const NODE: Owner = Owner { kind: 2, id: [0; 16] };

    /// Whether its series are a volume's or a node's.
    pub fn series(&self) -> super::series::Kind {
        if self.kind == 1 { super::series::Kind::Volume } else { super::series::Kind::Node }
    }

    /// Path of its file in the history's folder.
    pub fn path(&self, dir: &std::path::Path) -> std::path::PathBuf {
        match self.series() {
            super::series::Kind::Volume => dir.join(format!("{}.history", crate::record::VolumeId(self.id))),
            super::series::Kind::Node => dir.join("node.history"),
        }
    }
}

/// Why a header is not what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadHeader {
    /// A later version of Forebay wrote it.
    Newer(u16),
    /// It is torn, of something else, or not of this version's shape.
    Damaged(&'static str),
}

/// The header of a file. `made_at`: seconds since 1970.
pub fn encode_header(owner: &Owner, made_at: u64) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
    bytes[10] = owner.kind;
    bytes[11] = SERIES_MAX as u8;
    bytes[16..32].copy_from_slice(&owner.id);
    bytes[32..40].copy_from_slice(&made_at.to_le_bytes());
    for (number, ring) in RINGS.iter().enumerate() {
        let place = 40 + number * 16;
        bytes[place..place + 4].copy_from_slice(&ring.step_s.to_le_bytes());
        bytes[place + 4..place + 8].copy_from_slice(&ring.slots.to_le_bytes());
        bytes[place + 8..place + 16].copy_from_slice(&ring.offset.to_le_bytes());
    }
    let sum = crc32c(&bytes);
    bytes[HEADER_SUM..HEADER_SUM + 4].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Whose file it is, from the first bytes of it; an error for what is no history that this code can read.
pub fn decode_header(bytes: &[u8]) -> Result<Owner, BadHeader> {
    let Some(bytes) = bytes.get(..HEADER_BYTES) else { return Err(BadHeader::Damaged("it is too short")) };
    if &bytes[..8] != MAGIC {
        return Err(BadHeader::Damaged("it does not begin as a history does"));
    }
    let version = u16::from_le_bytes([bytes[8], bytes[9]]);
    if version > VERSION {
        return Err(BadHeader::Newer(version));
    }
    let mut summed = [0; HEADER_BYTES];
    summed.copy_from_slice(bytes);
    summed[HEADER_SUM..HEADER_SUM + 4].fill(0);
    if crc32c(&summed) != number(bytes, HEADER_SUM) {
        return Err(BadHeader::Damaged("its header does not match its checksum"));
    }
    let owner = Owner { kind: bytes[10], id: bytes[16..32].try_into().expect("16 bytes") };
    // What is left to differ is the shape: one version has one.
    let made_at = u64::from_le_bytes(bytes[32..40].try_into().expect("8 bytes"));
    if encode_header(&owner, made_at) != bytes {
        return Err(BadHeader::Damaged("its rings are not those of its version"));
    }
    Ok(owner)
}

/// What is known of one step of a ring.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    /// When the step begins, in seconds since 1970.
    pub at: u64,
    /// How many of its seconds were looked at.
    pub seconds: u16,
    /// Mean, or the figure of the one second.
    pub avg: [f32; SERIES_MAX],
    /// Smallest figure of the seconds that were looked at.
    pub min: [f32; SERIES_MAX],
    /// Largest figure of the seconds that were looked at.
    pub max: [f32; SERIES_MAX],
}

impl Slot {
    /// A step of which nothing is known.
    pub fn empty(at: u64) -> Slot {
        let none = [f32::NAN; SERIES_MAX];
        Slot { at, seconds: 0, avg: none, min: none, max: none }
    }
}

/// The bytes of a slot. `series`: how many there are; the rest of `slot` is not looked at.
pub fn encode_slot(owner: &Owner, ring: &Ring, slot: &Slot, series: usize, into: &mut [u8]) {
    let bytes = &mut into[..ring.slot_bytes()];
    bytes.fill(0);
    bytes[..8].copy_from_slice(&slot.at.to_le_bytes());
    bytes[12..14].copy_from_slice(&(series as u16).to_le_bytes());
    bytes[14..16].copy_from_slice(&slot.seconds.to_le_bytes());
    for (number, value) in slot.avg[..series].iter().enumerate() {
        let place = 16 + number * 4;
        let bits = if is_figure(*value) { value.to_bits() } else { NONE };
        bytes[place..place + 4].copy_from_slice(&bits.to_le_bytes());
    }
    if ring.step_s > 1 {
        for number in 0..series {
            let (low, high) = (16 + SERIES_MAX * 4 + number * 2, 16 + SERIES_MAX * 6 + number * 2);
            bytes[low..low + 2].copy_from_slice(&shorten(slot.min[number], false).to_le_bytes());
            bytes[high..high + 2].copy_from_slice(&shorten(slot.max[number], true).to_le_bytes());
        }
    }
    let sum = slot_sum(owner, ring.place(slot.at), bytes);
    bytes[SLOT_SUM..SLOT_SUM + 4].copy_from_slice(&sum.to_le_bytes());
}

/// The slot of a step; none where it was never written, is torn, or is of another time.
pub fn decode_slot(owner: &Owner, ring: &Ring, at: u64, bytes: &[u8]) -> Option<Slot> {
    let bytes = bytes.get(..ring.slot_bytes())?;
    if u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes")) != at || !at.is_multiple_of(u64::from(ring.step_s)) {
        return None;
    }
    let mut summed = [0; SLOT_BYTES_MAX];
    let summed = &mut summed[..bytes.len()];
    summed.copy_from_slice(bytes);
    summed[SLOT_SUM..SLOT_SUM + 4].fill(0);
    if slot_sum(owner, ring.place(at), summed) != number(bytes, SLOT_SUM) {
        return None;
    }
    let mut slot = Slot::empty(at);
    let series = usize::from(u16::from_le_bytes([bytes[12], bytes[13]])).min(SERIES_MAX);
    slot.seconds = u16::from_le_bytes([bytes[14], bytes[15]]);
    for number in 0..series {
        let avg = figure(self::number(bytes, 16 + number * 4));
        let short = |place: usize| u16::from_le_bytes([bytes[place], bytes[place + 1]]);
        let (low, high) = (16 + SERIES_MAX * 4 + number * 2, 16 + SERIES_MAX * 6 + number * 2);
        (slot.avg[number], slot.min[number], slot.max[number]) = match ring.step_s {
            1 => (avg, avg, avg),
            _ => (avg, lengthen(short(low)), lengthen(short(high))),
        };
    }
    Some(slot)
}

fn number(bytes: &[u8], place: usize) -> u32 {
    u32::from_le_bytes(bytes[place..place + 4].try_into().expect("4 bytes"))
}

/// Bound to file and place: a slot of another volume, or one that landed elsewhere, never fits.
fn slot_sum(owner: &Owner, place: u64, bytes: &[u8]) -> u32 {
    let mut seed = [0; 24];
    seed[..16].copy_from_slice(&owner.id);
    seed[16..].copy_from_slice(&place.to_le_bytes());
    crc32c(bytes) ^ crc32c(&seed)
}

fn is_figure(value: f32) -> bool {
    value.is_finite() && value >= 0.0
}

fn figure(bits: u32) -> f32 {
    let value = f32::from_bits(bits);
    if is_figure(value) { value } else { f32::NAN }
}

/// The upper half of the bits, rounded outward: a bound stays a bound.
fn shorten(value: f32, up: bool) -> u16 {
    if !is_figure(value) {
        return NONE_SHORT;
    }
    let bits = value.to_bits();
    let short = (bits >> 16) as u16;
    if up && bits & 0xffff != 0 { short + 1 } else { short }
}

fn lengthen(short: u16) -> f32 {
    figure(u32::from(short) << 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Owner = Owner { kind: 1, id: *b"0123456789abcdef" };

    fn slot(at: u64) -> Slot {
        let mut slot = Slot::empty(at);
        slot.seconds = 9;
        for (number, value) in [(0, 1.5), (1, 0.0), (3, 123_456_790.0)] {
            slot.avg[number] = value;
            slot.min[number] = value / 3.0;
            slot.max[number] = value * 3.0;
        }
        slot
    }

    fn encoded(ring: &Ring, slot: &Slot) -> Vec<u8> {
        let mut bytes = vec![0xee; ring.slot_bytes()];
        encode_slot(&US, ring, slot, 4, &mut bytes);
        bytes
    }

    #[test]
    fn header_has_its_golden_bytes() {
        let bytes = encode_header(&US, 1_700_000_000);
        assert_eq!(&bytes[..12], b"FBHIST\0\0\x01\0\x01\x3c");
        assert_eq!(crc_of(&bytes), GOLDEN_HEADER, "{:#010x}", crc_of(&bytes));
        assert_eq!(decode_header(&bytes), Ok(US));
        let rings: Vec<u32> = (0..16).map(|n| number(&bytes, 40 + n * 4)).collect();
        let expected =
            [1, 3600, 4096, 0, 10, 8640, 925_696, 0, 60, 10080, 5_211_136, 0, 600, 8640, 10_210_816, 0].to_vec();
        assert_eq!(rings, expected);
        assert_eq!(FILE_BYTES, 14_496_256);
    }

    #[test]
    fn slots_have_their_golden_bytes() {
        let fine = encoded(&RINGS[0], &slot(1_700_000_001));
        let coarse = encoded(&RINGS[1], &slot(1_700_000_010));
        assert_eq!((fine.len(), coarse.len()), (256, 496));
        assert_eq!(&fine[..8], &1_700_000_001u64.to_le_bytes());
        assert_eq!(&fine[12..36], &GOLDEN_FINE);
        assert_eq!(&coarse[256..264], &GOLDEN_MIN);
        assert_eq!(&coarse[376..384], &GOLDEN_MAX);
        assert_eq!(
            (number(&fine, 8), number(&coarse, 8)),
            GOLDEN_SUMS,
            "{:#x?}",
            (number(&fine, 8), number(&coarse, 8))
        );
    }

    // Computed by a second implementation of the format's page.
    const GOLDEN_HEADER: u32 = 0x9109_ebc9;
    const GOLDEN_FINE: [u8; 24] =
        [4, 0, 9, 0, 0, 0, 0xc0, 0x3f, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xa3, 0x79, 0xeb, 0x4c, 0, 0, 0, 0];
    const GOLDEN_MIN: [u8; 8] = [0, 0x3f, 0, 0, 0xff, 0xff, 0x1c, 0x4c];
    const GOLDEN_MAX: [u8; 8] = [0x90, 0x40, 0, 0, 0xff, 0xff, 0xb1, 0x4d];
    const GOLDEN_SUMS: (u32, u32) = (0x940c_6c8c, 0x8022_746a);

    fn crc_of(bytes: &[u8]) -> u32 {
        number(bytes, HEADER_SUM)
    }

    #[test]
    fn slots_come_back_and_bounds_stay_bounds() {
        let ring = &RINGS[1];
        let slot = slot(1_700_000_010);
        let back = decode_slot(&US, ring, slot.at, &encoded(ring, &slot)).unwrap();
        assert_eq!((back.at, back.seconds), (slot.at, 9));
        for number in [0, 1, 3] {
            assert_eq!(back.avg[number], slot.avg[number]);
            assert!(back.min[number] <= slot.min[number] && back.min[number] >= slot.min[number] * 0.99);
            assert!(back.max[number] >= slot.max[number] && back.max[number] <= slot.max[number] * 1.01);
        }
        assert!(back.avg[2].is_nan() && back.min[2].is_nan() && back.max[2].is_nan());
        assert!(back.avg[4].is_nan(), "more series than were written");
    }

    #[test]
    fn a_torn_slot_or_one_of_another_time_or_volume_counts_as_never_written() {
        let ring = &RINGS[0];
        let at = 1_700_000_001;
        let bytes = encoded(ring, &slot(at));
        assert!(decode_slot(&US, ring, at, &bytes).is_some());
        for byte in 0..bytes.len() {
            let mut torn = bytes.clone();
            torn[byte] ^= 0x10;
            assert!(decode_slot(&US, ring, at, &torn).is_none(), "byte {byte}");
        }
        assert!(decode_slot(&US, ring, at - ring.span_s(), &bytes).is_none());
        assert!(decode_slot(&Owner { kind: 1, id: [7; 16] }, ring, at, &bytes).is_none());
        assert!(decode_slot(&US, ring, 0, &[0; 256]).is_none(), "zeros are no slot of 1970");
        assert!(decode_slot(&US, ring, at, &bytes[..255]).is_none());
    }

    #[test]
    fn a_torn_or_newer_header_is_told_apart() {
        let bytes = encode_header(&US, 5);
        for byte in (0..80).filter(|byte| !(8..10).contains(byte)) {
            let mut torn = bytes;
            torn[byte] ^= 1;
            assert!(matches!(decode_header(&torn), Err(BadHeader::Damaged(_))), "byte {byte}");
        }
        let mut newer = bytes;
        newer[8] = 2;
        assert_eq!(decode_header(&newer), Err(BadHeader::Newer(2)));
        assert!(matches!(decode_header(&bytes[..100]), Err(BadHeader::Damaged(_))));
    }
}
