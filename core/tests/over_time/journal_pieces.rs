//! A batch goes to the journal in pieces of so many payloads. Whatever follows the last payload, no piece is empty.

use crate::stand::{MILLISECOND, SECOND, Stand, config};
use forebay_core::api::*;
use forebay_core::format::*;
use forebay_core::status::DestageMode;
use forebay_core::types::*;
use forebay_core::{Volume, VolumeConfig};

const PIECE: u64 = 256;
const VOLUME_BLOCKS: u64 = 4096;

/// Devices that take next to no time: batches may be large.
struct Prompt {
    volume: Volume,
    now: u64,
    pieces: Vec<usize>,
}

impl Stand for Prompt {
    fn volume(&mut self) -> &mut Volume {
        &mut self.volume
    }

    fn now(&self) -> Instant {
        Instant(self.now)
    }

    fn execute(&mut self, effect: Effect) {
        match effect {
            Effect::Reply { result, .. } => assert_eq!(result, Ok(Pieces::new())),
            Effect::JournalWrite { op, head, frames, .. } => {
                assert!(!head.is_empty() || !frames.is_empty(), "an empty write to the journal");
                self.pieces.push(frames.len());
                self.done(op);
            }
            Effect::BackingWrite { op, .. } => {
                self.now += MILLISECOND;
                self.done(op);
            }
            Effect::TierWrite { op, .. }
            | Effect::TierSync { op }
            | Effect::BackingZero { op, .. }
            | Effect::BackingSync { op }
            | Effect::JournalSync { op } => self.done(op),
            Effect::Describe { .. } | Effect::FramesFree | Effect::Copy { .. } => {}
            other => panic!("whole blocks need no {other:?}"),
        }
    }
}

impl Prompt {
    /// Writes so many blocks, zeroes so many ranges, and waits until all is in the backing.
    fn write_and_zero(&mut self, writes: u64, zeroed: u64) {
        for block in 0..writes {
            assert!(self.write_block(block, block), "there is a frame for each block");
        }
        for range in 0..zeroed {
            let offset = (writes + 8 * range) * BLOCK_BYTES;
            let request = Request::Zero { offset, length: 4 * BLOCK_BYTES, hole: true, fua: false };
            self.handle(Event::Request { id: RequestId(writes + range), request });
        }
        self.handle(Event::Request { id: RequestId(writes + zeroed), request: Request::Flush });
        for _ in 0..5 {
            self.work();
            self.now += SECOND;
        }
        assert_eq!(self.status().dirty_bytes, 0, "all is in the backing");
    }
}

/// Payloads in each piece of a batch of so many blocks written and then so many ranges zeroed.
fn pieces(writes: u64, zeroed: u64) -> Vec<usize> {
    let layout = TierLayout::memory(2048).unwrap();
    let config = VolumeConfig {
        journal_blocks: 2048,
        destage: DestageMode::Journaled,
        ..config(layout, VOLUME_BLOCKS * BLOCK_BYTES)
    };
    let mut stand = Prompt { volume: Volume::new(config, Instant(SECOND)), now: SECOND, pieces: Vec::new() };
    stand.handle(Event::BackingReady);
    stand.work();
    // How fast the backing is must be known before a batch has more than one piece.
    stand.write_and_zero(64, 0);
    stand.pieces.clear();
    stand.write_and_zero(writes, zeroed);
    stand.pieces
}

#[test]
fn ranges_behind_a_full_piece_make_no_piece_of_their_own() {
    assert_eq!(pieces(PIECE, 3), [256]);
    assert_eq!(pieces(PIECE + 1, 3), [256, 1]);
    assert_eq!(pieces(3 * PIECE, 1), [256, 256, 256]);
    assert_eq!(pieces(1, 1), [1]);
    assert_eq!(pieces(0, 2), [0]);
}
