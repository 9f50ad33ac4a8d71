//! The largest request that a volume takes: it follows from the layout of its tier and the number of its frames alone, so that it is
//! known of a tier that is still to be made.

use super::append::SEGMENTS_KEPT_FREE;
use super::{FRAMES_KEPT_MAX, FRAMES_RESERVED_MAX};
use crate::format::{TierKind, TierLayout};
use crate::types::{BLOCK_BYTES, REQUEST_BYTES_MAX};

/// The largest request, in bytes, of a volume with a tier of this layout and so many frames.
pub fn request_bytes_max(layout: &TierLayout, frames: u32) -> u32 {
    let reserved = frames_reserved(frames.saturating_sub(1));
    // One for what is not aligned, and one to load records into.
    let by_frames = reserved - frames_kept(reserved) - 2;
    let by_log = match layout.kind {
        TierKind::Memory => u32::MAX,
        TierKind::Flash => log_request_blocks_max(layout),
    };
    (u64::from(by_frames.min(by_log - 1)) * BLOCK_BYTES).min(REQUEST_BYTES_MAX) as u32
}

/// Of so many frames in all, those that dirty data never takes.
pub(super) fn frames_reserved(total: u32) -> u32 {
    (total / 15 * 4).clamp(16, FRAMES_RESERVED_MAX)
}

/// Of those, the ones that no client takes.
pub(super) fn frames_kept(reserved: u32) -> u32 {
    (reserved / 16).clamp(2, FRAMES_KEPT_MAX)
}

/// Blocks of one request that fit into the empty log of a flash tier.
pub(super) fn log_request_blocks_max(layout: &TierLayout) -> u32 {
    let segments = layout.segments() - SEGMENTS_KEPT_FREE - 2;
    log_dirty_blocks_max(layout).min(segments * (segment_data_blocks(layout) / 2))
}

/// Dirty blocks that the log of a flash tier takes. Room for headers, for segments half dead, and for compaction to have somewhere to
/// go.
pub(super) fn log_dirty_blocks_max(layout: &TierLayout) -> u32 {
    let segments = layout.segments();
    (segments - segments / 8 - 4) * segment_data_blocks(layout) / 4 * 3
}

fn segment_data_blocks(layout: &TierLayout) -> u32 {
    layout.segment_blocks - layout.summary_blocks
}
