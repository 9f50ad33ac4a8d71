//! Payload packed and unpacked.
//!
//! Invariants:
//! - What is packed is shorter by an eighth at least, or it goes as it is: less is not worth unpacking.
//! - Unpacking writes into memory of the length that the head has named, and never beyond; what does not fill it is an
//!   error. A payload is at most 1 MiB, so neither side can be made to use more.

use crate::buffers::Buffers;
use forebay_core::wire::{PAYLOAD_BYTES_MAX, Packing};

/// zstd's level: the fastest that has entropy coding; higher ones cost more CPU for each byte saved.
const ZSTD_LEVEL: i32 = 1;
/// The share of a payload that must be saved: one in so many.
const SAVED_SHARE: usize = 8;

/// A payload for the wire.
pub(super) struct Packed {
    pub(super) packing: Packing,
    pub(super) bytes: Vec<u8>,
}

/// Working memory of one link's end.
pub(super) struct Packer {
    zstd: Option<(zstd::bulk::Compressor<'static>, zstd::bulk::Decompressor<'static>)>,
    gathered: Vec<u8>,
    room: Vec<u8>,
    /// What `unpack` has left.
    unpacked: Vec<u8>,
}

impl Packer {
    pub(super) fn new() -> Packer {
        Packer { zstd: None, gathered: Vec::new(), room: Vec::new(), unpacked: Vec::new() }
    }

    fn zstd(&mut self) -> std::io::Result<&mut (zstd::bulk::Compressor<'static>, zstd::bulk::Decompressor<'static>)> {
        match &mut self.zstd {
            Some(both) => Ok(both),
            none => Ok(none.insert((zstd::bulk::Compressor::new(ZSTD_LEVEL)?, zstd::bulk::Decompressor::new()?))),
        }
    }

    /// The payload packed; none where it is not worth it. The memory must not change meanwhile, as for a send.
    pub(super) fn pack(&mut self, payload: &Buffers, packing: Packing) -> Option<Packed> {
        let length = payload.len() as usize;
        let mut gathered = std::mem::take(&mut self.gathered);
        gathered.clear();
        for piece in &payload.iovecs {
            // SAFETY: the vector points to `iov_len` bytes that `payload` keeps alive, and by core's rule nobody changes
            // a frame that is named in an operation.
            gathered
                .extend_from_slice(unsafe { std::slice::from_raw_parts(piece.iov_base.cast::<u8>(), piece.iov_len) });
        }
        self.room.resize(lz4_flex::block::get_maximum_output_size(PAYLOAD_BYTES_MAX as usize), 0);
        let packed = match packing {
            Packing::Plain => None,
            Packing::Lz4 => lz4_flex::block::compress_into(&gathered, &mut self.room).ok(),
            Packing::Zstd => {
                let mut room = std::mem::take(&mut self.room);
                let packed = self.zstd().ok().and_then(|zstd| zstd.0.compress_to_buffer(&gathered, &mut room[..]).ok());
                self.room = room;
                packed
            }
        };
        self.gathered = gathered;
        let packed = packed.filter(|packed| *packed > 0 && *packed <= length - length / SAVED_SHARE)?;
        Some(Packed { packing, bytes: self.room[..packed].to_vec() })
    }

    /// The payload unpacked, which must be `length` bytes: at most what a head may name.
    pub(super) fn unpack(&mut self, packing: Packing, packed: &[u8], length: usize) -> Result<&[u8], &'static str> {
        let mut unpacked = std::mem::take(&mut self.unpacked);
        unpacked.resize(PAYLOAD_BYTES_MAX as usize, 0);
        let room = &mut unpacked[..length];
        let filled = match packing {
            Packing::Plain => Err("payload: not packed"),
            Packing::Lz4 => {
                lz4_flex::block::decompress_into(packed, room).map_err(|_| "payload: not one LZ4 block of its length")
            }
            Packing::Zstd => {
                let zstd = self.zstd().map_err(|_| "payload: zstd has no memory")?;
                zstd.1.decompress_to_buffer(packed, room).map_err(|_| "payload: not one zstd frame of its length")
            }
        };
        self.unpacked = unpacked;
        match filled? {
            filled if filled == length => Ok(&self.unpacked[..length]),
            _ => Err("payload: shorter unpacked than its head says"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::Arena;
    use forebay_core::types::FrameId;

    /// Text of a kind in every block, not in order in memory.
    fn payload(arena: &mut Arena, text: bool) -> (Buffers, Vec<u8>) {
        let (mut buffers, mut all, mut state) = (Buffers::none(), Vec::new(), 1u64);
        for frame in [3, 1, 2, 0] {
            for (at, byte) in arena.bytes_mut(FrameId(frame)).iter_mut().enumerate() {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                *byte = if text { b"fn let mut self "[(at / 7 + frame as usize) % 16] } else { (state >> 56) as u8 };
            }
            all.extend_from_slice(arena.bytes(FrameId(frame)));
            buffers.push_frame(arena, FrameId(frame), 0, 4096);
        }
        (buffers, all)
    }

    #[test]
    fn what_is_packed_is_unpacked_to_the_same() {
        let mut arena = Arena::anonymous(4, false).unwrap();
        let (buffers, all) = payload(&mut arena, true);
        let (mut source, mut target) = (Packer::new(), Packer::new());
        for packing in [Packing::Lz4, Packing::Zstd] {
            let packed = source.pack(&buffers, packing).unwrap();
            assert!(packed.packing == packing && packed.bytes.len() < all.len() / 4);
            assert_eq!(target.unpack(packing, &packed.bytes, all.len()), Ok(&all[..]));
        }
    }

    #[test]
    fn what_does_not_get_shorter_goes_as_it_is() {
        let mut arena = Arena::anonymous(4, false).unwrap();
        let (buffers, _) = payload(&mut arena, false);
        for packing in [Packing::Plain, Packing::Lz4, Packing::Zstd] {
            assert!(Packer::new().pack(&buffers, packing).is_none());
        }
    }

    #[test]
    fn bytes_of_a_hostile_peer_are_an_error_and_no_more() {
        let mut arena = Arena::anonymous(4, false).unwrap();
        let (buffers, all) = payload(&mut arena, true);
        let mut packer = Packer::new();
        for packing in [Packing::Lz4, Packing::Zstd] {
            let good = packer.pack(&buffers, packing).unwrap().bytes;
            assert!(packer.unpack(packing, &good, 4096).is_err(), "longer than its head says");
            assert!(packer.unpack(packing, &good, 1 << 20).is_err(), "shorter than its head says");
            let mut state = 7u64;
            for _ in 0..3000 {
                let mut bad = good.clone();
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let at = (state >> 33) as usize % bad.len();
                bad[at] = (state >> 20) as u8;
                bad.truncate(bad.len() - (state >> 10) as usize % bad.len().min(9));
                // Damage that still unpacks is found by the checksums of the blocks.
                let _ = packer.unpack(packing, &bad, all.len());
            }
        }
        assert!(packer.unpack(Packing::Plain, &all, all.len()).is_err());
    }
}
