//! What is checked between events: the volume's invariants, the backing as a crash image at any moment, block status, and
//! that no frame is lost.

use super::*;
use crate::journal;

/// Which medium a write goes to.
#[derive(Clone, Copy)]
enum Medium {
    Backing,
    Journal,
}

impl World {
    pub(super) fn inspect(&mut self) {
        if let Some(volume) = &self.node.volume {
            if self.node.serving {
                volume.validate();
            }
            if self.answers_for_backing() {
                self.check_watermark();
            }
            if self.node.serving && self.has_lease() && self.random.below(64) == 0 {
                self.check_extents();
            }
        }
        if self.cluster.is_some() {
            self.inspect_cluster();
        }
        self.check_waits();
        if !self.damage_carried
            && !self.in_quarantine()
            && self.sectors_to_check > 0
            && self.random.chance(self.setup.check)
        {
            self.sectors_to_check = self.sectors_to_check.saturating_sub(self.oracle.bytes() / 512);
            self.check_all_logs_lost();
        }
    }

    /// If every log were lost now, would the backing be a legal crash image? Both for a dead process and for a loss
    /// of power, with what chance lets land.
    fn check_all_logs_lost(&mut self) {
        let mut flying: Vec<(Medium, usize, Vec<u8>)> = Vec::new();
        let ops = self.each_node().flat_map(|(_, node)| node.ops.values());
        for op in ops.filter(|op| op.error != Some(IoError::Checksum)) {
            match &op.kind {
                OpKind::BackingWrite { offset, bytes, .. } => flying.push((Medium::Backing, *offset, bytes.clone())),
                OpKind::BackingZero { offset, length } => flying.push((Medium::Backing, *offset, vec![0; *length])),
                OpKind::JournalWrite { offset, bytes, .. } => flying.push((Medium::Journal, *offset, bytes.clone())),
                OpKind::TierWrite { .. }
                | OpKind::TierSync { .. }
                | OpKind::TierRead { .. }
                | OpKind::TierScan { .. }
                | OpKind::BackingRead { .. }
                | OpKind::BackingSync { .. }
                | OpKind::JournalSync { .. }
                | OpKind::Send { .. }
                | OpKind::Merge { .. } => {}
            }
        }
        for (_, due) in self.agenda.values() {
            match due {
                Due::Ghost(Late::Write { offset, bytes, .. }) => flying.push((Medium::Backing, *offset, bytes.clone())),
                Due::Ghost(Late::Journal { offset, bytes }) => flying.push((Medium::Journal, *offset, bytes.clone())),
                Due::Ghost(Late::Read { .. }) => {}
                Due::LieLands(offset, bytes) => flying.push((Medium::Backing, *offset, bytes.clone())),
                Due::Op(_)
                | Due::Arrive(_)
                | Due::Wake(_)
                | Due::Sent(_)
                | Due::BackingReady
                | Due::BackingOpened(..)
                | Due::Replay(_)
                | Due::Operator
                | Due::Restart
                | Due::Audit
                | Due::Letter(_)
                | Due::Question(..)
                | Due::Verdict(_)
                | Due::Beat
                | Due::LockLost(_)
                | Due::Mischief(_) => {}
            }
        }
        let process = (self.backing.current.clone(), self.journal.current.clone());
        let power = (
            self.backing.after_power_loss(Landing::Random, &mut self.random),
            self.journal.after_power_loss(Landing::Random, &mut self.random),
        );
        let cases = [(process, "the process and all logs"), (power, "the power and all logs")];
        for ((mut image, mut journal), lost) in cases {
            for (medium, offset, bytes) in &flying {
                let medium = match medium {
                    Medium::Backing => &mut image,
                    Medium::Journal => &mut journal,
                };
                land(medium, *offset, bytes, Landing::Random, &mut self.random);
            }
            let image = journal::replayed(&VOLUME_UUID, &journal, self.size_promised, image);
            self.oracle.backing_is_crash_image(&image, &format!("had {lost} been lost"));
        }
    }

    /// Block status may call a range zero only if a read of it may return zeros.
    fn check_extents(&mut self) {
        let volume = self.node.volume.as_ref().expect("it serves");
        let size = volume.size_bytes();
        let offset = self.random.below(size / 512) * 512;
        let mut at = offset;
        let zeros = vec![0; self.oracle.bytes() as usize];
        for extent in volume.extents(offset, size - offset, 64) {
            assert!(extent.length > 0, "an empty extent");
            let end = at + extent.length;
            assert!(end <= size, "an extent ends at {end}, beyond the volume's {size} bytes");
            if extent.zero && !self.damage_carried {
                let why = "an extent said to read as zeros";
                self.oracle.image_has_all_before(&zeros, at, extent.length, self.moment, why);
            }
            at = end;
        }
        assert!(at > offset, "block status says nothing");
    }

    pub(super) fn backing_has_all_before(&mut self, moment: Moment, why: &str) {
        if self.damage_carried {
            return; // what damage took cannot be in the backing
        }
        let bytes = self.oracle.bytes();
        self.oracle.image_has_all_before(&self.backing.durable, 0, bytes, moment, why);
    }

    pub(super) fn at_rest_checks(&mut self) {
        if self.damage_carried || self.damaged {
            return;
        }
        trace!(self, "at rest");
        self.check_seen_at_rest();
        self.backing_has_all_before(self.moment, "the backing of a volume without dirty data");
    }

    /// No frame has been lost: all that exist can be had, clean cache included.
    pub(super) fn check_frames(&mut self) {
        let volume = self.node.volume.as_mut().expect("it serves");
        let mut had = Frames::new();
        let mut one = Frames::new();
        let nobody = ClientId(u32::MAX);
        while volume.take_frames(nobody, 1, &mut one) {
            had.append(&mut one);
        }
        volume.withdraw(nobody);
        let distinct: BTreeSet<u32> = had.iter().map(|f| f.0).collect();
        assert_eq!(distinct.len(), had.len(), "a frame is given out twice");
        let kept_back = self.node.frames as usize - had.len();
        // For edges and destage a fifteenth, for reads four of them, and the frame of zeros.
        let fifteenth = self.node.frames as usize / 15;
        let kept_back_max = fifteenth.max(4) + (fifteenth * 4).max(16) + 1;
        volume.return_frames(&had);
        trace!(self, "{kept_back} of {} frames cannot be taken at rest", self.node.frames);
        assert!(
            kept_back <= kept_back_max,
            "frames are lost: {kept_back} of {} cannot be taken at rest",
            self.node.frames
        );
    }
}
