//! The backing: slow, failing, gone for a while, or full.
//!
//! Checked: nothing is written before its lock is held, beyond the volume, unaligned, deeper than allowed, or over a write
//! that is in flight.

use super::*;

impl World {
    pub(super) fn begin_backing_read(&mut self, op: OpId, at: BlockIndex, frames: Frames) {
        for &frame in &frames {
            self.pin_target(frame, "a backing read");
        }
        self.coverage.see("read from the backing");
        let error = self.backing_error(self.setup.faults.backing_read_error);
        if error.is_some() {
            self.coverage.see("backing read failed");
        }
        let early = (self.random.below(2) == 0).then(|| self.backing_bytes(at, frames.len()));
        self.begin(
            op,
            OpKind::BackingRead { at, frames, early },
            error,
            self.setup.backing_micros_max,
            self.setup.faults.backing_stall,
        );
    }

    pub(super) fn begin_backing_write(&mut self, op: OpId, offset: u64, parts: Parts) {
        self.assert_lease("the backing is written");
        self.assert_listed();
        let mut error = self.backing_write_error();
        let mut detected = false;
        for part in &parts {
            self.pin_source(part.frame, "a backing write");
            let frame = self.frame(part.frame);
            if let Some(check) = &part.check
                && !self.check_holds(check, frame)
            {
                assert!(self.damaged, "the volume destages a frame that does not match its checksum: {check:?}");
                detected = true;
                error = Some(IoError::Checksum);
            }
        }
        let bytes = self.bytes_of(&parts);
        let most = self.setup.backing_write_bytes_max as usize;
        assert!((1..=most).contains(&bytes.len()), "a backing write of {} bytes", bytes.len());
        if detected {
            self.coverage.see("damage detected by checksum");
        }
        self.assert_backing_writable(offset, bytes.len() as u64, "a write");
        if error != Some(IoError::Checksum) {
            self.assert_journal_allows(offset as usize, &bytes);
        }
        self.begin(
            op,
            OpKind::BackingWrite { offset: offset as usize, bytes, parts },
            error,
            self.setup.backing_micros_max,
            self.setup.faults.backing_stall,
        );
    }

    pub(super) fn begin_backing_zero(&mut self, op: OpId, offset: u64, length: u64) {
        self.assert_lease("the backing is written");
        self.assert_listed();
        assert!(length > 0, "an empty zero request at {offset}");
        self.assert_backing_writable(offset, length, "a zero request");
        self.assert_journal_allows(offset as usize, &vec![0; length as usize]);
        let mut error = self.backing_write_error();
        if self.setup.faults.backing_zero_unsupported {
            self.coverage.see("zero request unsupported by the backing");
            error = Some(IoError::Unsupported);
        }
        self.coverage.see("zeros destaged");
        self.begin(
            op,
            OpKind::BackingZero { offset: offset as usize, length: length as usize },
            error,
            self.setup.backing_micros_max,
            self.setup.faults.backing_stall,
        );
    }

    pub(super) fn begin_backing_sync(&mut self, op: OpId) {
        let error = self.backing_error(self.setup.faults.backing_sync_error);
        let mark = self.backing.mark();
        self.begin(
            op,
            OpKind::BackingSync { mark },
            error,
            self.setup.backing_micros_max,
            self.setup.faults.backing_stall,
        );
    }

    pub(super) fn end_backing_read(
        &mut self,
        at: BlockIndex,
        frames: &Frames,
        early: Option<Vec<u8>>,
        error: Option<IoError>,
    ) {
        let bytes = match early {
            Some(bytes) => bytes,
            None => self.backing_bytes(at, frames.len()),
        };
        for (i, &frame) in frames.iter().enumerate() {
            self.unpin_target(frame);
            let target = self.frame_mut(frame);
            if error.is_some() {
                target.fill(0xbb);
            } else {
                target.copy_from_slice(&bytes[i * BLOCK..(i + 1) * BLOCK]);
            }
        }
    }

    pub(super) fn end_backing_sync(&mut self, mark: u64, error: Option<IoError>) {
        if error.is_some() {
            self.coverage.see("backing sync failed");
            let revert = self.random.below(3) == 0;
            self.backing.sync_failed(mark, revert, &mut self.random);
            self.backing_sync_failed = (0..self.backing.current.len() / 512).collect();
        } else if !matches!(self.lie, Some(Lie::BackingSyncDropped)) {
            self.backing.sync(mark);
        }
    }

    pub(super) fn backing_error(&mut self, error: u32) -> Option<IoError> {
        if self.fault(self.setup.faults.backing_gone) {
            self.backing_gone_until = self.now + Duration::from_millis(self.random.range(10, 120_000));
            self.note_trouble_until(self.backing_gone_until);
        }
        if self.backing_gone_until > self.now && self.faults_on() {
            self.coverage.see("backing gone");
            return Some(IoError::Gone);
        }
        self.fault(error).then_some(IoError::Failed)
    }

    pub(super) fn backing_write_error(&mut self) -> Option<IoError> {
        if self.node.part.fenced {
            return Some(IoError::Gone);
        }
        let error = self.backing_error(self.setup.faults.backing_write_error);
        if error.is_none() && self.fault(self.setup.faults.backing_full) {
            self.coverage.see("backing full");
            return Some(IoError::NoSpace);
        }
        error
    }

    fn assert_backing_writable(&mut self, offset: u64, length: u64, what: &str) {
        assert!(self.node.backing_ready, "{what} to the backing before its lock was held");
        let align = u64::from(self.setup.backing_align);
        let size = self.node.volume.as_ref().expect("it asks").size_bytes();
        let end = offset + length;
        assert!(length > 0 && end <= size.next_multiple_of(align), "{what} [{offset}+{length}] beyond the volume");
        assert!(offset.is_multiple_of(align), "{what} at {offset} is not aligned to {align}");
        assert!(
            end.is_multiple_of(align) || end == size,
            "{what} [{offset}+{length}] ends neither aligned to {align} nor at the end"
        );
        let flying = self
            .node
            .ops
            .values()
            .filter(|op| matches!(op.kind, OpKind::BackingWrite { .. } | OpKind::BackingZero { .. }))
            .count();
        assert!(flying < self.setup.backing_depth_max as usize, "more backing writes in flight than allowed");
        assert!(
            !self.over_destage(offset, length),
            "{what} [{offset}+{length}] overlaps one that is in flight: either may win"
        );
        self.backing_changes += 1;
        if self.backing_sync_failed.contains(&(offset as usize / 512)) {
            self.coverage.see("backing range rewritten after a failed sync");
        }
    }

    pub(super) fn over_destage(&self, offset: u64, length: u64) -> bool {
        let (from, to) = (offset as usize, (offset + length) as usize);
        self.node.ops.values().any(|op| match &op.kind {
            OpKind::BackingWrite { offset, bytes, .. } => *offset < to && from < offset + bytes.len(),
            OpKind::BackingZero { offset, length } => *offset < to && from < offset + length,
            OpKind::TierWrite { .. }
            | OpKind::TierSync { .. }
            | OpKind::TierRead { .. }
            | OpKind::TierScan { .. }
            | OpKind::BackingRead { .. }
            | OpKind::BackingSync { .. }
            | OpKind::JournalWrite { .. }
            | OpKind::JournalSync { .. }
            | OpKind::Send { .. }
            | OpKind::Merge { .. } => false,
        })
    }

    pub(super) fn backing_bytes(&mut self, at: BlockIndex, blocks: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(blocks * BLOCK);
        let stale = self.lie == Some(Lie::BackingStaleRead) && self.random.below(4) == 0;
        let image = if stale { &self.old_backing } else { &self.backing.current };
        for block in 0..blocks {
            let from = (at.0 as usize + block) * BLOCK;
            if from + BLOCK <= image.len() {
                bytes.extend_from_slice(&image[from..from + BLOCK]);
            } else {
                bytes.resize(bytes.len() + BLOCK, 0);
            }
        }
        bytes
    }

    pub(super) fn end_backing_write(&mut self, offset: usize, bytes: Vec<u8>, error: Option<IoError>) {
        if error == Some(IoError::Checksum) || bytes.is_empty() {
            return;
        }
        if self.is_former_owner() {
            self.assert_pinned(offset, bytes.len());
        }
        if error.is_some() {
            self.coverage.see("backing write failed");
            self.backing.write_torn(offset, &bytes, Landing::Random, &mut self.random);
        } else if self.lie == Some(Lie::BackingReordered) && self.liar_backlog < 8 {
            self.liar_backlog += 1;
            let wait = self.micros(200_000);
            self.schedule(wait, Due::LieLands(offset, bytes));
        } else {
            if self.lie == Some(Lie::BackingStaleRead) {
                let range = offset..offset + bytes.len();
                self.old_backing[range.clone()].copy_from_slice(&self.backing.current[range]);
            }
            self.backing.write(offset, &bytes);
        }
    }
}
