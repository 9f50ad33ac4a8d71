//! Frames of the arena: real blocks of memory, and who uses each.
//!
//! Checked: nothing is written into a frame that somebody reads or fills, nothing read from one that is being filled.

use super::*;

impl World {
    pub(super) fn frame_at(&self, frame: FrameId) -> usize {
        assert!(frame.0 < self.node.frames, "{frame:?} does not exist");
        match self.node.layout.kind {
            TierKind::Memory => (self.node.layout.payload_first + frame.0) as usize * BLOCK,
            TierKind::Flash => frame.0 as usize * BLOCK,
        }
    }

    pub(super) fn frame(&self, frame: FrameId) -> &[u8] {
        let at = self.frame_at(frame);
        match self.node.layout.kind {
            TierKind::Memory => &self.node.tier.current[at..at + BLOCK],
            TierKind::Flash => &self.node.arena[at..at + BLOCK],
        }
    }

    pub(super) fn frame_mut(&mut self, frame: FrameId) -> &mut [u8] {
        let at = self.frame_at(frame);
        match self.node.layout.kind {
            TierKind::Memory => &mut self.node.tier.current[at..at + BLOCK],
            TierKind::Flash => &mut self.node.arena[at..at + BLOCK],
        }
    }

    pub(super) fn assert_writable(&self, frame: FrameId, by: &str) {
        let i = frame.0 as usize;
        assert!(self.node.readers[i] == 0, "{frame:?} is overwritten by {by} while an operation or a reply reads it");
        assert!(!self.node.writing[i], "{frame:?} is overwritten by {by} while an operation fills it");
    }

    pub(super) fn assert_readable(&self, frame: FrameId, by: &str) {
        assert!(!self.node.writing[frame.0 as usize], "{frame:?} is read by {by} while an operation fills it");
        assert!(!self.node.taken[frame.0 as usize], "{frame:?} is read by {by} while a client has it");
    }

    pub(super) fn pin_source(&mut self, frame: FrameId, by: &str) {
        self.assert_readable(frame, by);
        self.node.readers[frame.0 as usize] += 1;
    }

    pub(super) fn unpin_source(&mut self, frame: FrameId) {
        self.node.readers[frame.0 as usize] -= 1;
    }

    pub(super) fn pin_target(&mut self, frame: FrameId, by: &str) {
        self.assert_writable(frame, by);
        assert!(!self.node.taken[frame.0 as usize], "{frame:?} is overwritten by {by} while a client has it");
        self.node.writing[frame.0 as usize] = true;
    }

    pub(super) fn unpin_target(&mut self, frame: FrameId) {
        self.node.writing[frame.0 as usize] = false;
    }

    pub(super) fn unpin_pieces(&mut self, pieces: &Pieces) {
        for piece in pieces {
            if let Source::Frame(frame, _) = piece.source {
                self.unpin_source(frame);
            }
        }
    }

    pub(super) fn check_holds(&self, check: &Check, bytes: &[u8]) -> bool {
        payload_checksum(&VOLUME_UUID, check.block, check.mask, check.term, bytes) == check.checksum
    }

    pub(super) fn bytes_of(&self, parts: &Parts) -> Vec<u8> {
        let mut bytes = Vec::new();
        for part in parts {
            let from = usize::from(part.from);
            bytes.extend_from_slice(&self.frame(part.frame)[from..from + usize::from(part.length)]);
        }
        bytes
    }

    pub(super) fn copy(&mut self, source: Source, target: FrameId, start: u16, length: u16) {
        self.assert_writable(target, "a copy");
        let range = usize::from(start)..usize::from(start) + usize::from(length);
        let bytes = match source {
            Source::Frame(frame, _) => {
                self.assert_readable(frame, "a copy");
                self.frame(frame)[range.clone()].to_vec()
            }
            Source::Zero => vec![0; range.len()],
        };
        self.frame_mut(target)[range].copy_from_slice(&bytes);
    }
}
