//! Quantities and handles. Indexes, counts and sizes are different types, each with its unit in the name,
//! so that a block number can never be taken for a byte offset.
//!
//! Core never holds payload bytes: a [`FrameId`] names 4 KiB of memory that the executor owns, and a checksum
//! says what those bytes must be.

use alloc::vec::Vec;
use core::fmt;
use core::ops::{Add, Sub};
use smallvec::SmallVec;

/// Natural unit of payload, log and cache: 4 KiB.
pub const BLOCK_BYTES: u64 = 4096;
/// Unit of correctness: 512 bytes, the smallest piece that is ever dirty by itself.
pub const SECTOR_BYTES: u64 = 512;
/// Sectors in a block.
pub const SECTORS_PER_BLOCK: u32 = 8;
/// Largest volume: 64 TiB, 2^34 blocks; the on-disk descriptor has room for 2^40.
pub const VOLUME_BYTES_MAX: u64 = 64 << 40;
/// Largest client request, as NBD servers commonly allow.
pub const REQUEST_BYTES_MAX: u64 = 32 << 20;

/// Some volume can have this size, in bytes.
pub fn is_a_size(bytes: u64) -> bool {
    (SECTOR_BYTES..=VOLUME_BYTES_MAX).contains(&bytes) && bytes.is_multiple_of(SECTOR_BYTES)
}

/// Why an operation of the executor failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoError {
    /// The device or file reported an error (EIO and the like).
    Failed,
    /// No room left on the device (ENOSPC, EDQUOT).
    NoSpace,
    /// The device is gone (ENODEV, ESTALE, connection lost).
    Gone,
    /// The bytes read do not match the checksum that was given.
    Checksum,
    /// The device does not support the operation (a hole or zero request).
    Unsupported,
}

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $inner);
        impl ::core::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }
        impl ::core::fmt::Display for $name {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

pub(crate) use number;

number!(/// A 4 KiB block of the volume, counted from its start.
    BlockIndex(u64));
number!(/// Log position of one record. Strictly grows with every record of a volume; 0 is before the first.
    Lsn(u64));
number!(/// Number of an owner of the volume. A record carries the term of its first writing, wherever it is copied, and its
    /// payload checksum is bound to it. Where one node has the volume to itself, each start is a new owner.
    Term(u32));
number!(/// Number of a start of one tier, by whomever: grows with each, so that nothing that an earlier one has written is
    /// taken for this one's. Another tier with the same log counts its own.
    Start(u32));
number!(/// Barrier group: the writes between two client barriers (flush or FUA). Grows by one at each barrier.
    Group(u32));
number!(/// 4 KiB of memory in the volume's arena.
    FrameId(u32));
number!(/// A 4 KiB block of the tier, counted from the tier's start.
    TierBlock(u32));
number!(/// An operation that core asked for by an effect and will hear of by an event. Never used twice.
    OpId(u64));
number!(/// A client request, named by the front end. Never used twice while it is open.
    RequestId(u64));
number!(/// Whoever sends requests in an order of its own, one after the other: a connection, named by the front end.
    ClientId(u32));
number!(/// A control command, named by its sender.
    ControlId(u64));

/// Requests that are asked for among all that are open: a client may have a thousand, and so may others.
pub(crate) struct RequestIds(Vec<RequestId>);

impl RequestIds {
    pub(crate) fn new(ids: &[RequestId]) -> RequestIds {
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        RequestIds(ids)
    }

    pub(crate) fn contains(&self, id: RequestId) -> bool {
        self.0.binary_search(&id).is_ok()
    }
}

/// Nanoseconds on a clock that never goes back and counts time in suspend (CLOCK_BOOTTIME).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Instant(pub u64);

/// A span of time in nanoseconds. Core has its own because std's cannot be written in a transcript or a seed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Duration(pub u64);

impl Duration {
    /// So many microseconds, kept as nanoseconds.
    pub const fn from_micros(micros: u64) -> Self {
        Duration(micros * 1_000)
    }
    /// So many milliseconds, kept as nanoseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Duration(millis * 1_000_000)
    }
    /// So many seconds, kept as nanoseconds.
    pub const fn from_secs(secs: u64) -> Self {
        Duration(secs * 1_000_000_000)
    }
    /// As seconds, for figures shown to people.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    fn add(self, span: Duration) -> Instant {
        Instant(self.0.saturating_add(span.0))
    }
}

impl Sub for Instant {
    type Output = Duration;
    fn sub(self, earlier: Instant) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }
}

impl Lsn {
    /// The position after this one.
    pub fn next(self) -> Lsn {
        Lsn(self.0 + 1)
    }
}

impl Group {
    /// The group after this one. Wraps after 2^32 barriers (half a day at a hundred thousand a second): groups are only
    /// compared for equality, and those alive at one time are far fewer.
    pub fn next(self) -> Group {
        Group(self.0.wrapping_add(1))
    }
}

impl BlockIndex {
    /// First byte of the block.
    pub fn byte(self) -> u64 {
        self.0 * BLOCK_BYTES
    }
    /// The block that holds a byte.
    pub fn of_byte(byte: u64) -> BlockIndex {
        BlockIndex(byte / BLOCK_BYTES)
    }
}

/// Which of a block's eight 512-byte sectors are meant; bit 0 is the first sector.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SectorMask(pub u8);

impl SectorMask {
    /// All eight sectors: the whole block.
    pub const FULL: SectorMask = SectorMask(0xff);
    /// None of the eight sectors.
    pub const NONE: SectorMask = SectorMask(0);

    /// The sectors that lie in `[from, to)` bytes of the block; both must be multiples of 512.
    pub fn of_bytes(from: u64, to: u64) -> SectorMask {
        debug_assert!(from.is_multiple_of(SECTOR_BYTES) && to.is_multiple_of(SECTOR_BYTES));
        debug_assert!(from <= to && to <= BLOCK_BYTES);
        let below = |bytes: u64| ((1u32 << (bytes / SECTOR_BYTES)) - 1) as u8;
        SectorMask(below(to) & !below(from))
    }
    /// True when all eight sectors are in.
    pub fn is_full(self) -> bool {
        self.0 == 0xff
    }
    /// True when no sector is in.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
    /// Sectors in both.
    pub fn and(self, other: SectorMask) -> SectorMask {
        SectorMask(self.0 & other.0)
    }
    /// Sectors in either.
    pub fn or(self, other: SectorMask) -> SectorMask {
        SectorMask(self.0 | other.0)
    }
    /// Sectors in this one and not in the other.
    pub fn without(self, other: SectorMask) -> SectorMask {
        SectorMask(self.0 & !other.0)
    }
    /// Bytes that the sectors have together, 0 to 4096.
    pub fn bytes(self) -> u64 {
        u64::from(self.0.count_ones()) * SECTOR_BYTES
    }
    /// Maximal runs of neighbouring sectors as `(first sector, count)`, in order.
    pub fn runs(self) -> impl Iterator<Item = (u32, u32)> {
        let mut rest = self.0;
        core::iter::from_fn(move || {
            if rest == 0 {
                return None;
            }
            let first = rest.trailing_zeros();
            let count = (rest >> first).trailing_ones();
            let run = ((1u32 << (first + count)) - (1u32 << first)) as u8;
            rest &= !run;
            Some((first, count))
        })
    }
}

impl fmt::Debug for SectorMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08b}", self.0)
    }
}

/// Frames in the order of the bytes they hold. A 4 KiB request stays inline.
pub type Frames = SmallVec<[FrameId; 2]>;

/// One 4 KiB block of a client's payload as it lies in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Payload {
    /// Holds the bytes at their place within the block; what the request does not cover is zero.
    pub frame: FrameId,
    /// [`crate::format::payload_checksum`] of the whole frame for the request's sectors of this block; ignored
    /// where the request covers part of a sector, because core then has the block merged first.
    pub checksum: u32,
}

/// The blocks of one write, in address order.
pub type Payloads = SmallVec<[Payload; 1]>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mask_of_bytes_and_runs_agree() {
        assert_eq!(SectorMask::of_bytes(0, 4096), SectorMask::FULL);
        assert_eq!(SectorMask::of_bytes(512, 1536), SectorMask(0b110));
        assert_eq!(SectorMask::of_bytes(1024, 1024), SectorMask::NONE);
        let runs: Vec<_> = SectorMask(0b1011_0001).runs().collect();
        assert_eq!(runs, [(0, 1), (4, 2), (7, 1)]);
        assert_eq!(SectorMask::FULL.runs().collect::<Vec<_>>(), [(0, 8)]);
    }
}
