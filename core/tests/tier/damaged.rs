//! A tier that changed by itself, or lost what was never synced, between two starts: named schedules, each of which
//! once lost data without a word. The test changes the device's bytes.

use super::stand::*;
use forebay_core::api::*;
use forebay_core::format::*;
use forebay_core::status::{ControlError, Phase, Policy, Reason};
use forebay_core::types::*;

/// Proves L-BF-7, L-BF-3: the summary of a segment landed and one of its batches did not. The batches behind it are cut off;
/// the summary must not bring them back when the numbers of those batches have been given again.
#[test]
fn summary_does_not_bring_back_what_was_cut_off() {
    let mut life = Life::first(TierKind::Flash);
    for block in 0..14 {
        life.write(block, 100 + block as u8);
    }
    let mut tier = life.kill();
    // Power was cut, nothing had been flushed: the payload of the fifth batch is not there.
    tier[at(layout(TierKind::Flash).payload_first + 4 * 2 + 1)..][..BLOCK].fill(0);

    let mut life = Life::after(TierKind::Flash, tier);
    assert_eq!((life.read(3), life.read(4), life.read(7)), (Ok(103), Ok(0), Ok(0)));
    for block in 20..30 {
        life.write(block, 200);
    }
    life.flush();
    let mut tier = life.kill();
    for _ in 0..3 {
        let mut life = Life::after(TierKind::Flash, tier);
        assert_eq!(
            (life.read(3), life.read(4), life.read(7)),
            (Ok(103), Ok(0), Ok(0)),
            "a read does not change its mind"
        );
        assert_eq!(life.read(29), Ok(200));
        tier = life.kill();
    }
}

/// Proves L-BF-7: of a segment that was opened and never synced the summary landed, and its first header did not. Whoever uses
/// the segment next must not have that summary believed, should its own be lost.
#[test]
fn summary_of_a_segment_without_a_head_brings_nothing_back() {
    let layout = layout(TierKind::Flash);
    let head = |segment: u32| at(layout.payload_first + segment * layout.segment_blocks);
    let summary = at(layout.payload_first + layout.segment_blocks - layout.summary_blocks)..head(1);
    let mut life = Life::first(TierKind::Flash);
    for block in 0..14 {
        life.write(block, 100 + block as u8);
    }
    let mut tier = life.kill();
    assert!(tier[summary.clone()].iter().any(|&byte| byte != 0), "the first segment is sealed");
    tier[head(0)..][..BLOCK].fill(0);
    tier[head(1)..][..BLOCK].fill(0);

    let mut life = Life::after(TierKind::Flash, tier);
    let before = life.tier[summary.clone()].to_vec();
    for block in 20..34 {
        life.write(block, 200);
    }
    life.flush();
    let mut tier = life.kill();
    for _ in 0..3 {
        tier[summary.clone()].copy_from_slice(&before);
        let mut life = Life::after(TierKind::Flash, tier);
        assert_eq!((life.read(0), life.read(5), life.read(20), life.read(33)), (Ok(0), Ok(0), Ok(200), Ok(200)));
        tier = life.kill();
    }
}

/// Proves L-BF-7: the same for a batch behind a first header that never landed, at the place of one that is lost later.
#[test]
fn batch_of_a_life_without_a_head_brings_nothing_back() {
    let first = at(layout(TierKind::Flash).payload_first);
    let mut life = Life::first(TierKind::Flash);
    for block in 0..3 {
        life.write(block, 100);
    }
    let mut tier = life.kill();
    tier[first..first + 4 * BLOCK].fill(0);
    let left = tier[first + 4 * BLOCK..first + 6 * BLOCK].to_vec();

    let mut life = Life::after(TierKind::Flash, tier);
    life.write(10, 200);
    life.write(11, 200);
    life.flush();
    life.write(12, 200);
    life.write(13, 200); // says that the first two are synced
    let mut tier = life.kill();
    tier[first + 4 * BLOCK..first + 6 * BLOCK].copy_from_slice(&left);
    for _ in 0..3 {
        let mut life = Life::after(TierKind::Flash, tier);
        assert_eq!((life.read(2), life.read(10), life.read(11)), (Ok(0), Ok(200), Ok(200)));
        assert_eq!(
            (life.read(12), life.read(13)),
            (Ok(0), Ok(0)),
            "the end of the log is where its own batch is missing"
        );
        tier = life.kill();
    }
}

/// Proves L-BF-6: a segment that is used again has the summary of its earlier life at its end until it is full. When its first header
/// is damaged that summary does not stand for it: what was flushed is behind that header.
#[test]
fn summary_of_an_earlier_life_does_not_speak_for_a_damaged_head() {
    let layout = layout(TierKind::Flash);
    let head = |segment: u32| TierBlock(layout.payload_first + segment * layout.segment_blocks);
    let mut life = Life::first(TierKind::Flash);
    life.write(0, 1);
    life.write(1, 2);
    life.flush();
    let tier = life.kill();
    let mut life = Life::after(TierKind::Flash, tier);
    life.write(2, 3);
    life.flush();
    life.write(3, 4);
    let mut tier = life.kill();
    assert_eq!(newest(&tier).batches_synced, 2);
    let batch = |segment| Batch::decode(&ID, head(segment), &tier[at(head(segment).0)..][..BLOCK]).unwrap();
    let (earlier, present) = (batch(0).segment, batch(1));
    assert_eq!(present.sequence, 3, "the second life uses the second segment");

    let summary_at = TierBlock(head(2).0 - layout.summary_blocks);
    let summary = Summary { segment: earlier - 1, first_batch: 1, last_batch: 2, records: Vec::new() };
    let bytes = summary.encode(&ID, summary_at, layout.summary_blocks);
    tier[at(summary_at.0)..][..bytes.len()].copy_from_slice(&bytes);
    let mut life = Life::after(TierKind::Flash, tier.clone());
    assert_eq!((life.read(1), life.read(2), life.read(3)), (Ok(2), Ok(3), Ok(4)), "it harms nobody");

    tier[at(head(1).0) + 70] ^= 1;
    let life = Life::after(TierKind::Flash, tier);
    assert!(matches!(life.phase(), Phase::Refused(why) if why.contains("damaged")), "{:?}", life.phase());
}

/// A tier whose last segment has a damaged first header, and behind it the two batches with which the log goes on.
fn log_goes_on_behind_a_damaged_head() -> Vec<u8> {
    let layout = layout(TierKind::Flash);
    let mut life = Life::first(TierKind::Flash);
    life.write(0, 1);
    life.write(1, 2);
    life.flush();
    let tier = life.kill();
    let mut life = Life::after(TierKind::Flash, tier);
    life.write(2, 3);
    life.write(3, 4);
    let mut tier = life.kill();
    assert_eq!(newest(&tier).batches_synced, 2);
    let head = layout.payload_first + layout.segment_blocks;
    let block = |tier: &[u8], block: u32| tier[at(block)..at(block + 1)].to_vec();
    for batch in [1, 0] {
        let (from, to) = (head + 2 * batch, head + 2 + 2 * batch);
        let moved = Batch::decode(&ID, TierBlock(from), &block(&tier, from)).expect("a batch of one block");
        assert_eq!(moved.sequence, 3 + u64::from(batch));
        let (header, payload) = (moved.encode(&ID, TierBlock(to)), block(&tier, from + 1));
        tier[at(to)..at(to + 1)].copy_from_slice(&header);
        tier[at(to + 1)..at(to + 2)].copy_from_slice(&payload);
    }
    tier[at(head)..at(head + 2)].fill(0xa5);
    tier
}

/// Proves L-BF-6 (R5 of docs/format.md): that is no end of the log.
#[test]
fn a_log_that_goes_on_behind_a_damaged_head_is_refused() {
    let life = Life::after(TierKind::Flash, log_goes_on_behind_a_damaged_head());
    assert!(matches!(life.phase(), Phase::Refused(why) if why.contains("may be behind it")), "{:?}", life.phase());
}

#[cfg(feature = "mutants")]
#[test]
fn mutants_end_the_log_before_a_damaged_head() {
    let mut life = Life::opened(TierKind::Flash, log_goes_on_behind_a_damaged_head(), false, |_| ());
    life.volume.rules.end_before_bad_head = true;
    life.run();
    assert_eq!(life.phase(), Phase::Serving, "what was acknowledged is gone, and nobody is told");
    assert_eq!((life.read(1), life.read(2)), (Ok(2), Ok(0)));
}

/// Proves L-BF-3, L-BF-7: the power cut took the batches of a segment that had just been filled, not its summary. The number
/// of that life must not be given again: the summary would speak for batches that it has never seen.
#[test]
fn summary_of_a_life_that_was_lost_does_not_speak_for_the_next() {
    let layout = layout(TierKind::Flash);
    let mut life = Life::first(TierKind::Flash);
    life.write(0, 1);
    life.flush();
    // Fills the rest of the first segment, the whole second one, and begins the third: few batches, large ones.
    for i in 0..5 {
        life.write_blocks(1 + 10 * i, 10, 50);
    }
    let mut tier = life.kill();
    let first = at(layout.payload_first);
    let segment = at(layout.segment_blocks);
    let summary = at(layout.segment_blocks - layout.summary_blocks);
    assert!(tier[first + segment + summary..][..8] == *b"FBSUMM\0\0", "the second segment is full");
    // Nothing but the first write was flushed; the power cut left it, and the second segment's summary.
    tier[first + at(2)..first + segment].fill(0);
    tier[first + segment..][..summary].fill(0);
    tier[first + 2 * segment..].fill(0);

    let mut life = Life::after(TierKind::Flash, tier);
    assert_eq!((life.read(0), life.read(20)), (Ok(1), Ok(0)));
    for block in 40..48 {
        life.write(block, 7);
        life.flush();
    }
    let mut tier = life.kill();
    // From the second of these starts on, the checkpoint vouches for more batches than the summary lists.
    for start in 0..4 {
        let mut life = Life::after(TierKind::Flash, tier);
        assert_eq!(life.phase(), Phase::Serving, "start {start}");
        assert_eq!((life.read(0), life.read(20)), (Ok(1), Ok(0)), "start {start}");
        for block in 40..48 {
            assert_eq!(life.read(block), Ok(7), "start {start}, block {block}");
        }
        life.write(60, start);
        life.flush();
        tier = life.kill();
    }
}

/// Proves L-BF-6: a batch header in the open segment was damaged. The marks in the headers behind it say that it was synced,
/// but its length, by which they are found, is gone.
#[test]
fn damaged_header_before_synced_batches_is_no_end_of_the_log() {
    for damaged_batch in 0..6 {
        let mut life = Life::first(TierKind::Flash);
        for block in 0..8 {
            life.write(block, 100 + block as u8);
            life.flush();
        }
        let mut tier = life.kill();
        tier[at(layout(TierKind::Flash).payload_first + 2 * damaged_batch) + 70] ^= 1;
        let life = Life::after(TierKind::Flash, tier);
        assert!(matches!(life.phase(), Phase::Refused(_)), "batch {damaged_batch}: {:?}", life.phase());
    }
}

/// Proves L-BM-6: the entry of the newest acknowledged write was damaged: not to be taken for one that was being stored.
#[test]
fn damaged_newest_descriptor_is_no_interrupted_store() {
    let mut life = Life::first(TierKind::Memory);
    for block in 0..8 {
        life.write(block, 100 + block as u8);
    }
    let tier = life.kill();
    let layout = layout(TierKind::Memory);
    let position = |entry: usize| u64::from_le_bytes(tier[entry..entry + 8].try_into().unwrap());
    let entries = (0..layout.payload_blocks as usize).map(|i| at(layout.table_first) + i * DESCRIPTOR_BYTES);
    let newest = entries.max_by_key(|&entry| position(entry)).unwrap();
    for byte in 0..DESCRIPTOR_BYTES {
        let mut tier = tier.clone();
        tier[newest + byte] ^= 4;
        let life = Life::after(TierKind::Memory, tier);
        assert!(matches!(life.phase(), Phase::Refused(_)), "byte {byte}: {:?}", life.phase());
    }
}

/// Proves L-BM-2: a kill between two stores of an entry leaves everything before it, and the volume serves.
#[test]
fn interrupted_store_of_a_descriptor_is_forgotten() {
    let mut life = Life::first(TierKind::Memory);
    for block in 0..8 {
        life.write(block, 100 + block as u8);
    }
    let tier = life.kill();
    let layout = layout(TierKind::Memory);
    let free = (0..layout.payload_blocks as usize)
        .map(|i| at(layout.table_first) + i * DESCRIPTOR_BYTES)
        .find(|&entry| tier[entry..entry + DESCRIPTOR_BYTES].iter().all(|&byte| byte == 0))
        .unwrap();
    for words in 1..4 {
        let mut tier = tier.clone();
        tier[free..free + 8].copy_from_slice(&DESCRIPTOR_UNFINISHED.to_le_bytes());
        tier[free + 8..free + 8 * words].fill(0xab);
        let mut life = Life::after(TierKind::Memory, tier);
        assert_eq!(life.phase(), Phase::Serving);
        for block in 0..8 {
            assert_eq!(life.read(block), Ok(100 + block as u8));
        }
    }
}

/// Proves L-BF-6, L-BM-6: either copy of the checkpoint holds everything that was relied upon.
#[test]
fn damaged_checkpoint_is_covered_by_its_copy() {
    for kind in [TierKind::Memory, TierKind::Flash] {
        let mut life = Life::first(kind);
        life.write(1, 1);
        life.flush();
        let tier = life.kill();
        let life = Life::after(kind, tier);
        let (term, tier) = (life.volume.term(), life.kill());
        for copy in [1, 2] {
            let mut tier = tier.clone();
            tier[at(copy) + 30] ^= 1;
            let mut life = Life::after(kind, tier);
            assert_eq!(life.phase(), Phase::Serving);
            assert!(life.volume.term() > term, "a term is given once, whichever copy is damaged");
            assert_eq!(life.read(1), Ok(1));
        }
        let mut tier = tier;
        tier[at(1) + 30] ^= 1;
        tier[at(2) + 30] ^= 1;
        assert!(matches!(Life::after(kind, tier).phase(), Phase::Refused(_)));
    }
}

/// O-9: a tier that has become shorter is refused, wherever it ends.
#[test]
fn tier_that_was_cut_off_is_refused() {
    for kind in [TierKind::Memory, TierKind::Flash] {
        let mut life = Life::first(kind);
        life.write(1, 1);
        life.flush();
        let tier = life.kill();
        let layout = layout(kind);
        let scanned = match kind {
            TierKind::Memory => layout.table_first + layout.table_blocks,
            TierKind::Flash => layout.payload_first + layout.payload_blocks - layout.segment_blocks,
        };
        for blocks in 2..=scanned {
            let mut short = tier.clone();
            short.truncate(at(blocks) - 1);
            let volume = Life::after(kind, short);
            assert!(matches!(volume.phase(), Phase::Refused(_)), "{kind:?} cut off within block {}", blocks - 1);
        }
    }
}

/// Found by the simulation (seed 771153377): the summary of a segment rotted in which a batch lies that a start had cut off, with the number
/// that follows the log's last one. All that follows that segment is known by a summary, which lists no starts.
#[test]
fn a_batch_that_was_cut_off_is_not_what_follows_a_summary() {
    let layout = layout(TierKind::Flash);
    let first = at(layout.payload_first);
    let mut life = Life::first(TierKind::Flash);
    for block in 0..4 {
        life.write(block, 100);
    }
    let mut tier = life.kill();
    tier[first + at(4)..first + at(6)].fill(0); // the third batch never landed; no walk leads to the fourth, which stays
    let mut life = Life::after(TierKind::Flash, tier);
    life.write(10, 200);
    life.flush();
    let life = Life::after(TierKind::Flash, life.kill());
    assert_eq!(life.phase(), Phase::Serving);
    let mut tier = life.kill();
    assert_eq!(newest(&tier).batches_synced, 3);
    let summary = first + at(layout.segment_blocks - layout.summary_blocks);
    tier[summary] ^= 1;
    let mut life = Life::after(TierKind::Flash, tier);
    assert_eq!(life.phase(), Phase::Serving, "its headers say the same");
    assert_eq!((life.read(0), life.read(1), life.read(2), life.read(10)), (Ok(100), Ok(100), Ok(0), Ok(200)));
}

/// R7: what is sealed like the volume's own and cannot be true is refused; it is neither believed nor a reason to die.
#[test]
fn records_for_places_that_do_not_exist_are_refused() {
    let refused = |kind, tier: Vec<u8>, what: &str| {
        let life = Life::after(kind, tier);
        assert!(matches!(life.phase(), Phase::Refused(_)), "{kind:?}, {what}: {:?}", life.phase());
    };
    let data = Kind::Data { mask: SectorMask::FULL, checksum: 0 };
    let descriptor =
        |block: u64, kind| Descriptor { lsn: Lsn(9), block: BlockIndex(block), group: Group(1), term: Term(1), kind };
    let beyond = [
        (descriptor(VOLUME_BLOCKS as u64, data), "a block behind the end"),
        (descriptor((1 << 40) - 1, data), "the last block there is"),
        (descriptor(1, Kind::ZeroBlocks { blocks: u32::MAX, hole: true }), "a range over the end"),
    ];
    for kind in [TierKind::Memory, TierKind::Flash] {
        let tier = Life::first(kind).kill();
        for size_bytes in [0, u64::MAX, VOLUME_BYTES_MAX + 512, 4097] {
            let mut tier = tier.clone();
            let checkpoint =
                Checkpoint { sequence: 99, start: Start(3), term: Term(3), size_bytes, ..Checkpoint::default() };
            tier[at(1)..at(2)].copy_from_slice(&checkpoint.encode(Version::Two, &ID));
            refused(kind, tier, "a size that no volume has");
        }
    }

    let layout = layout(TierKind::Memory);
    let tier = Life::first(TierKind::Memory).kill();
    let with_entry = |index: u32, descriptor: Descriptor| {
        let mut tier = tier.clone();
        let entry = at(layout.table_first) + index as usize * DESCRIPTOR_BYTES;
        tier[entry..entry + DESCRIPTOR_BYTES].copy_from_slice(&descriptor.encode(&ID, u64::from(index)));
        tier
    };
    for (descriptor, what) in beyond {
        let index = if descriptor.has_payload() { 0 } else { layout.payload_blocks };
        refused(TierKind::Memory, with_entry(index, descriptor), what);
    }
    refused(TierKind::Memory, with_entry(layout.payload_blocks, descriptor(1, data)), "data where ranges are");
    refused(TierKind::Memory, with_entry(layout.payload_blocks - 1, descriptor(1, data)), "data in the frame of zeros");
    let zero = Kind::ZeroSectors { mask: SectorMask(1) };
    refused(TierKind::Memory, with_entry(0, descriptor(1, zero)), "zeros where data is");

    let layout = self::layout(TierKind::Flash);
    let mut life = Life::first(TierKind::Flash);
    life.write(0, 1);
    life.flush();
    let first = at(layout.payload_first);
    let tier = life.kill();
    let with_batch = |records: Vec<Descriptor>| {
        let mut tier = tier.clone();
        let place = TierBlock(layout.payload_first);
        let batch = Batch { segment: FIRST_LIFE, sequence: 1, synced_through: 1, start: Start(1), records };
        tier[first..first + BLOCK].copy_from_slice(&batch.encode(&ID, place));
        tier
    };
    for (descriptor, what) in beyond {
        refused(TierKind::Flash, with_batch(vec![descriptor]), what);
    }
    refused(TierKind::Flash, with_batch(vec![descriptor(1, data); 100]), "a batch longer than its segment");

    for payload in [layout.segment_blocks, u32::MAX] {
        let mut tier = tier.clone();
        let data_blocks = layout.segment_blocks - layout.summary_blocks;
        let place = TierBlock(layout.payload_first + data_blocks);
        let records = vec![(descriptor(1, data), payload)];
        let summary = Summary { segment: FIRST_LIFE, first_batch: 1, last_batch: 1, records };
        let bytes = summary.encode(&ID, place, layout.summary_blocks);
        tier[first + at(data_blocks)..][..bytes.len()].copy_from_slice(&bytes);
        let checkpoint = Checkpoint {
            sequence: 99,
            start: Start(3),
            term: Term(3),
            batches_synced: 1,
            size_bytes: (VOLUME_BLOCKS * BLOCK) as u64,
            ..Checkpoint::default()
        };
        tier[at(1)..at(2)].copy_from_slice(&checkpoint.encode(Version::Two, &ID));
        refused(TierKind::Flash, tier, "a payload outside its segment");
    }
}

/// L-TM-4, L-TF-4: with policy through the loss of the tier costs nothing flushed. While the log holds what was
/// acknowledged before the change, or by an earlier process, that is not so, and the volume does not say it.
#[test]
fn write_through_is_not_effective_while_the_tier_alone_holds_something() {
    for kind in [TierKind::Memory, TierKind::Flash] {
        let shown = |life: &Life| {
            let status = life.volume.status(Instant(life.now));
            (status.requested, status.effective, status.reason)
        };
        let mut life = Life::first(kind);
        life.command(Control::SetPolicy(Policy::Through));
        assert_eq!(shown(&life), (Policy::Through, Policy::Through, Reason::AsRequested), "the log is empty");
        life.command(Control::SetPolicy(Policy::Back));
        life.write(1, 1);
        life.flush();
        for _ in 0..2 {
            life.command(Control::SetPolicy(Policy::Through));
            assert_eq!(shown(&life), (Policy::Through, Policy::Back, Reason::Draining), "{kind:?}");
        }
        let tier = life.kill();
        let life = Life::after_with(kind, tier, |config| config.policy = Policy::Through);
        assert_eq!(shown(&life), (Policy::Through, Policy::Back, Reason::Draining), "{kind:?}, after a start");
    }
}

/// L-BF-13: nothing waits for a tier that has failed, a resize neither.
#[test]
fn resize_is_answered_when_the_tier_fails() {
    let mut life = Life::first(TierKind::Flash);
    life.write(1, 1);
    life.tier_answer = Outcome::Failed(IoError::Failed);
    for _ in 0..2 {
        life.command(Control::Resize(2 * (VOLUME_BLOCKS * BLOCK) as u64));
        assert_eq!(core::mem::take(&mut life.answers), [Err(ControlError::TierFailed)]);
    }
}

/// L-BF-1: records without payload that were superseded by records that were superseded themselves, and whose segment
/// is free again. Nothing on the tier says early that they are dead: more of them than the index has places for.
#[test]
fn log_with_more_dead_zeros_than_places_is_recovered() {
    let layout = layout(TierKind::Flash);
    let mut life = Life::first(TierKind::Flash);
    for live_from in [0, 20] {
        // A full segment: 20 live blocks, so that it is never compacted, and 100 zeroed pieces of blocks 40 to 59.
        let mut requests = vec![life.write_request(live_from, 10, 1), life.write_request(live_from + 10, 10, 1)];
        requests.extend((0..100).map(|i| {
            let offset = (40 + i / 5) * BLOCK_BYTES + (1 + i % 5) * SECTOR_BYTES;
            Request::Zero { offset, length: SECTOR_BYTES, hole: true, fua: false }
        }));
        life.together(requests);
        // Another: what supersedes them.
        let both = vec![life.write_request(40, 10, 2), life.write_request(50, 10, 2)];
        life.together(both);
    }
    assert!(2 * 100 > layout.ranges_max);
    let second_segment = at(layout.payload_first + layout.segment_blocks);
    assert!(life.tier[second_segment..][..8] == *b"FBBATCH\0");
    for _ in 0..500 {
        life.write(62, 3);
    }
    assert!(life.tier[second_segment..][..8] != *b"FBBATCH\0" || life.tier[second_segment + 16] != 2, "it is reused");

    let mut life = Life::after(TierKind::Flash, life.kill());
    assert_eq!(life.phase(), Phase::Serving);
    for (block, value) in [(0, 1), (39, 1), (40, 2), (59, 2), (62, 3), (61, 0)] {
        assert_eq!(life.read(block), Ok(value), "block {block}");
    }
}
