//! The largest volume there is on the smallest tier: amounts that overflow, run out or take for ever there.

use forebay_core::api::*;
use forebay_core::format::{Superblock, TIER_BLOCKS_MIN, TierLayout, Version};
use forebay_core::status::{DestageMode, Phase, Policy};
use forebay_core::types::*;
use forebay_core::{Volume, VolumeConfig};

const NOW: Instant = Instant(1);

/// A fresh volume on a memory tier that takes everything at once, before a backing that is never ready.
fn largest_volume() -> Volume {
    let layout = TierLayout::memory(TIER_BLOCKS_MIN).unwrap();
    let size_bytes = VOLUME_BYTES_MAX;
    let mut volume = Volume::new(
        VolumeConfig {
            superblock: Superblock {
                version: Version::Two,
                tier: 1,
                volume: [3; 16],
                name: [0; 64],
                size_bytes,
                created_unix_s: 0,
                layout,
            },
            fresh: true,
            size_bytes,
            policy: Policy::Back,
            frames: layout.payload_blocks,
            backing_align: 512,
            backing_depth_max: 1,
            backing_write_bytes_max: 4096,
            destage_round_bytes_max: 4096,
            journal_blocks: 0,
            destage: DestageMode::Auto,
            destage_delay: Duration(0),
            drain_max: Duration(0),
            cluster: None,
        },
        NOW,
    );
    answered(&mut volume);
    assert_eq!(volume.status(NOW).phase, Phase::Serving);
    volume
}

/// Does what the volume asks until it rests; the number of replies.
fn answered(volume: &mut Volume) -> usize {
    let mut replies = 0;
    loop {
        volume.settle(NOW);
        let mut idle = true;
        while let Some(effect) = volume.poll_effect() {
            idle = false;
            match effect {
                Effect::TierWrite { op, .. } | Effect::TierSync { op } => {
                    volume.handle(NOW, Event::Done { op, outcome: Outcome::Ok });
                }
                Effect::Reply { result, .. } => replies += usize::from(result.is_ok()),
                Effect::Describe { .. } | Effect::Copy { .. } | Effect::FramesFree => {}
                other => panic!("not needed for zeros: {other:?}"),
            }
        }
        if idle {
            return replies;
        }
    }
}

fn zero(volume: &mut Volume, id: u64, offset: u64, length: u64) -> usize {
    let request = Request::Zero { offset, length, hole: true, fua: false };
    volume.handle(NOW, Event::Request { id: RequestId(id), request });
    answered(volume)
}

#[test]
fn zeroing_everything_takes_no_more_records_than_were_set_aside() {
    let ranges_max = TierLayout::memory(TIER_BLOCKS_MIN).unwrap().ranges_max;
    for used in 0..=ranges_max {
        let mut volume = largest_volume();
        for i in 0..u64::from(used) {
            assert_eq!(zero(&mut volume, i, i * BLOCK_BYTES, BLOCK_BYTES), usize::from(i + 7 <= u64::from(ranges_max)));
            volume.validate();
        }
        // Sectors at both ends, and all blocks between: they fit, or they wait.
        zero(&mut volume, 1_000, 512, VOLUME_BYTES_MAX - 1024);
        volume.validate();
    }
}

#[test]
fn block_status_of_everything_is_answered_in_pieces() {
    let mut volume = largest_volume();
    let mut at = 0;
    for _ in 0..3 {
        let extents = volume.extents(at, VOLUME_BYTES_MAX, 1024);
        let length: u64 = extents.iter().map(|extent| extent.length).sum();
        assert!((BLOCK_BYTES..=1 << 30).contains(&length), "{length} bytes at {at}");
        at += length;
    }
    assert_eq!(zero(&mut volume, 1, 0, VOLUME_BYTES_MAX), 1);
    let extents = volume.extents(0, u64::MAX, 1024);
    assert!(extents.iter().all(|extent| extent.zero && extent.dirty), "{extents:?}");
    assert!(extents[0].length <= 1 << 30);
}
