//! The tier: table and batches in, records out, with errors, rot, and writes that are lost or land elsewhere.
//!
//! Checked: the log as seen from outside. What enters it is whole; what the watermark has passed is in the backing.

use super::*;

/// One record that the volume has put into its log, as seen from outside.
#[derive(Clone)]
pub(super) struct Logged {
    pub(super) block: BlockIndex,
    pub(super) group: Group,
    /// For each of its sectors the bytes' checksum.
    pub(super) sectors: Vec<(u32, u32)>,
}

impl Logged {
    /// The checksum that it gives this sector of the volume.
    pub(super) fn sum_of(&self, sector: u64) -> Option<u32> {
        let within = sector.checked_sub(self.block.0 * 8)?;
        self.sectors.iter().find(|(s, _)| u64::from(*s) == within).map(|&(_, sum)| sum)
    }
}

impl World {
    pub(super) fn describe(&mut self, index: u32, bytes: &[u8]) {
        assert!(self.node.layout.kind == TierKind::Memory, "a flash tier has no descriptor table");
        assert!(index < self.node.layout.table_blocks * DESCRIPTORS_PER_BLOCK, "descriptor {index} of the table");
        let at = self.node.layout.table_first as usize * BLOCK + index as usize * DESCRIPTOR_BYTES;
        self.node.tier.current[at..at + DESCRIPTOR_BYTES].copy_from_slice(bytes);
        match Descriptor::decode(&VOLUME_UUID, u64::from(index), bytes) {
            Ok(Some(record)) => {
                self.recorded(&record, Some(FrameId(index)));
                if record.has_payload() && self.fault(self.setup.faults.frame_rot) {
                    trace!(self, "a bit of frame {index} rots");
                    self.frame_mut(FrameId(index))[7] ^= 4;
                    self.rotten = true;
                    self.damage();
                }
            }
            Ok(None) => {}
            Err(reason) => panic!("descriptor {index} cannot be read back: {reason}"),
        }
    }

    pub(super) fn begin_tier_write(&mut self, op: OpId, at: TierBlock, head: Vec<u8>, frames: Vec<FrameId>) {
        let memory = self.node.layout.kind == TierKind::Memory;
        let mut bytes = head;
        assert!(bytes.len().is_multiple_of(BLOCK), "a tier write's head is whole blocks");
        for &frame in &frames {
            self.pin_source(frame, "a tier write");
            bytes.extend_from_slice(self.frame(frame));
        }
        assert!(!bytes.is_empty(), "an empty tier write at {at:?}");
        let offset = at.0 as usize * BLOCK;
        let end = offset + bytes.len();
        let overlaps = self.node.ops.values().any(|op| match &op.kind {
            OpKind::TierWrite { offset: o, bytes: b, .. } => *o < end && offset < o + b.len(),
            OpKind::TierSync { .. }
            | OpKind::TierRead { .. }
            | OpKind::TierScan { .. }
            | OpKind::BackingRead { .. }
            | OpKind::BackingWrite { .. }
            | OpKind::BackingZero { .. }
            | OpKind::BackingSync { .. }
            | OpKind::JournalWrite { .. }
            | OpKind::JournalSync { .. }
            | OpKind::Send { .. }
            | OpKind::Merge { .. } => false,
        });
        assert!(!overlaps, "a tier write at {at} overlaps one that is in flight: either may win");
        assert!(
            offset + bytes.len() <= self.node.tier.current.len() && !bytes.is_empty(),
            "a tier write beyond the tier"
        );
        self.note_batch(at, &bytes, &frames);
        let mut error = self.fault(self.setup.faults.tier_write_error).then_some(IoError::Failed);
        if error.is_none() && self.fault(self.setup.faults.tier_full) {
            error = Some(IoError::NoSpace);
        }
        if memory {
            assert!(
                offset + bytes.len() <= self.node.layout.payload_first as usize * BLOCK,
                "a tier write into the arena"
            );
            // Memory does not fail; stored at once.
            error = None;
            self.node.tier.current[offset..offset + bytes.len()].copy_from_slice(&bytes);
        }
        self.tier_writes += 1;
        let stalls = self.setup.late_tier_write == Some(self.tier_writes);
        let stall = if stalls { 1_000_000 } else { self.setup.faults.tier_stall };
        self.begin(op, OpKind::TierWrite { offset, bytes, frames }, error, self.setup.tier_micros_max, stall);
    }

    pub(super) fn begin_tier_sync(&mut self, op: OpId) {
        let memory = self.node.layout.kind == TierKind::Memory;
        let overlaps = self.node.ops.values().any(|op| matches!(op.kind, OpKind::TierSync { .. }));
        assert!(!overlaps, "two syncs of the tier at one time: the kernel tells an error to one of them only");
        let error = (!memory && self.fault(self.setup.faults.tier_sync_error)).then_some(IoError::Failed);
        let mark = self.node.tier.mark();
        self.begin(op, OpKind::TierSync { mark }, error, self.setup.tier_micros_max, self.setup.faults.tier_stall);
    }

    pub(super) fn begin_tier_read(&mut self, op: OpId, at: TierBlock, frames: Checks) {
        for &(frame, _) in &frames {
            self.pin_target(frame, "a tier read");
        }
        self.coverage.see("read from flash");
        if frames.len() > 1 {
            self.coverage.see("payloads read from flash in a run");
        }
        let error = self.fault(self.setup.faults.tier_read_error).then_some(IoError::Failed);
        self.begin(
            op,
            OpKind::TierRead { at, frames },
            error,
            self.setup.tier_micros_max,
            self.setup.faults.tier_stall,
        );
    }

    pub(super) fn begin_tier_scan(&mut self, op: OpId, at: TierBlock, blocks: u32) {
        assert!(
            u64::from(at.0) + u64::from(blocks) <= u64::from(self.node.layout.tier_blocks),
            "a scan beyond the tier"
        );
        self.begin(op, OpKind::TierScan { at, blocks }, None, self.setup.tier_micros_max, 0);
    }

    pub(super) fn end_tier_write(&mut self, offset: usize, bytes: &[u8], frames: Vec<FrameId>, error: Option<IoError>) {
        for frame in frames {
            self.unpin_source(frame);
        }
        if error.is_some() {
            self.coverage.see("tier write failed");
            self.node.tier.write_torn(offset, bytes, Landing::Random, &mut self.random);
        } else if self.node.layout.kind == TierKind::Flash {
            self.flash_takes(offset, bytes);
        }
    }

    pub(super) fn end_tier_sync(&mut self, mark: u64, error: Option<IoError>) {
        if error.is_some() {
            self.coverage.see("tier sync failed");
            self.node.tier.sync_failed(mark, false, &mut self.random);
        } else if self.lie != Some(Lie::TierSyncDropped) {
            self.node.tier.sync(mark);
        }
    }

    pub(super) fn end_tier_read(&mut self, at: TierBlock, frames: Checks, error: Option<IoError>) -> Outcome {
        let mut outcome = error.map_or(Outcome::Ok, Outcome::Failed);
        for (place, (frame, check)) in (at.0 as usize..).zip(frames) {
            self.unpin_target(frame);
            if error.is_some() {
                self.coverage.see("tier read failed");
                self.frame_mut(frame).fill(0xba);
                continue;
            }
            let bytes = self.node.tier.current[place * BLOCK..(place + 1) * BLOCK].to_vec();
            if !self.check_holds(&check, &bytes) {
                // Recovery also reads what a crash may have torn.
                assert!(
                    self.damaged
                        || !self.node.serving
                        || self.lie == Some(Lie::TierWriteLost)
                        // Of a tier that has failed, what was never written may be read, and refused.
                        || self.node.tier_errors > 0,
                    "an undamaged tier block {place} does not match {check:?}"
                );
                if self.node.serving {
                    self.coverage.see("damage detected by checksum");
                } else {
                    self.coverage.see("torn tail found in recovery");
                }
                outcome = Outcome::Failed(IoError::Checksum);
            }
            self.frame_mut(frame).copy_from_slice(&bytes);
        }
        outcome
    }

    fn flash_takes(&mut self, offset: usize, bytes: &[u8]) {
        if self.lie == Some(Lie::TierWriteLost) && self.random.below(8) == 0 {
            return;
        }
        if self.fault(self.setup.faults.flash_lost) {
            trace!(self, "the write at tier byte {offset} is lost");
            self.damage();
            return;
        }
        if self.fault(self.setup.faults.flash_misdirected) {
            let blocks = (self.node.tier.current.len() - bytes.len()) / BLOCK;
            let elsewhere = self.random.below(blocks as u64 + 1) as usize * BLOCK;
            trace!(self, "the write at tier byte {offset} lands at {elsewhere}");
            self.node.tier.write(elsewhere, bytes);
            self.damage();
            return;
        }
        self.node.tier.write(offset, bytes);
        if self.fault(self.setup.faults.flash_rot) {
            let at = offset + self.random.below(bytes.len() as u64) as usize;
            let rotten = self.node.tier.current[at] ^ (1 << self.random.below(8));
            trace!(self, "a bit of tier byte {at} rots");
            self.node.tier.current[at] = rotten;
            let sector = at / 512 * 512;
            let bytes = self.node.tier.current[sector..sector + 512].to_vec();
            self.node.tier.write(sector, &bytes);
            self.damage();
        }
    }

    fn damage(&mut self) {
        self.coverage.see("tier damaged");
        self.damaged = true;
        self.errors_injected = true;
    }

    pub(super) fn recorded(&mut self, record: &Descriptor, frame: Option<FrameId>) {
        let mut sectors = Vec::new();
        match record.kind {
            Kind::Data { mask, checksum } => {
                let frame = frame.expect("data has a payload");
                let check = Check { block: record.block, mask, term: record.term, checksum };
                let bytes = self.frame(frame).to_vec();
                assert!(self.check_holds(&check, &bytes), "a record enters the log with a payload that is not its own");
                for s in 0..SECTORS_PER_BLOCK {
                    if mask.0 & 1 << s != 0 {
                        let at = s as usize * 512;
                        sectors.push((s, crc32c(&bytes[at..at + 512])));
                    }
                }
            }
            Kind::ZeroSectors { mask } => {
                let zeros = crc32c(&[0; 512]);
                sectors.extend((0..SECTORS_PER_BLOCK).filter(|s| mask.0 & 1 << s != 0).map(|s| (s, zeros)));
            }
            Kind::ZeroBlocks { blocks, .. } => {
                let zeros = crc32c(&[0; 512]);
                sectors.extend((0..blocks * SECTORS_PER_BLOCK).map(|s| (s, zeros)));
            }
        }
        assert!(record.lsn > Lsn(0), "a record at the position before the first");
        let logged = Logged { block: record.block, group: record.group, sectors };
        if let Some(cluster) = &mut self.cluster {
            if let Some(owned) = self.node.part.owns {
                // A former owner that does not know it goes on, in a log that is lost.
                if cluster.log.get(&record.lsn.0).is_none_or(|(term, _)| *term <= owned) {
                    cluster.log.insert(record.lsn.0, (owned, logged.clone()));
                }
                for &(sector, checksum) in &logged.sectors {
                    cluster.first.entry((logged.block.0, sector, checksum)).or_insert(record.lsn);
                }
            }
            // Known as long as the tier is: what a member was sent in one life may be superseded in the next.
            self.node.records.insert(record.lsn.0, logged);
            return;
        }
        // Asked of the volume: it may move records before this world has noticed that it serves.
        if self.node.volume.as_ref().is_none_or(|volume| record.term != volume.term()) {
            // Moved by compaction; what superseded it in an earlier life is not known here.
            return;
        }
        self.node.records.entry(record.lsn.0).or_insert(logged);
    }

    fn note_batch(&mut self, at: TierBlock, bytes: &[u8], frames: &[FrameId]) {
        let Ok(batch) = Batch::decode(&VOLUME_UUID, at, &bytes[..BLOCK]) else { return };
        let phase = self.node.volume.as_ref().map(|volume| volume.status(self.clock()).phase);
        if frames.is_empty() && matches!(phase, Some(Phase::Recovering | Phase::Refused(_))) {
            // Recovery writes the header of a batch that it keeps once more, and the payload by itself. What it had asked for may be
            // taken after another write of it has failed.
            return;
        }
        assert_eq!(batch.payload_blocks() as usize, frames.len(), "a batch has the payload of its records");
        let mut frames = frames.iter();
        for record in &batch.records {
            let frame = if record.has_payload() { frames.next().copied() } else { None };
            self.recorded(record, frame);
        }
    }

    /// The watermark has passed records: the backing must hold them, or newer ones, durably.
    pub(super) fn check_watermark(&mut self) {
        let Some(volume) = &self.node.volume else { return };
        let status = volume.status(self.clock());
        let destaged = status.destaged;
        let own_log_begins = self.cluster.is_some() && destaged < self.node.destaged_seen;
        assert!(destaged >= self.node.destaged_seen || own_log_begins, "the destage position goes back");
        if own_log_begins {
            return;
        }
        if destaged == self.node.destaged_seen || self.damage_carried {
            return;
        }
        self.assert_passed("the destage position", destaged, &self.backing.durable, status.held);
        self.node.destaged_seen = destaged;
        self.node.records = self.node.records.split_off(&(destaged.0 + 1));
    }

    /// Something says that the backing has everything up to a position, which `image` is then. Each sector holds the newest
    /// content up to there, or newer; or the log holds, up to another position, what has superseded that.
    pub(super) fn assert_passed(&self, what: &str, through: Lsn, image: &[u8], logged: Lsn) {
        let (records, from) = (&self.node.records, self.node.destaged_seen);
        let mut newest: BTreeMap<u64, u64> = BTreeMap::new();
        for (&lsn, record) in records.range(from.0 + 1..=through.0) {
            for &(sector, _) in &record.sectors {
                newest.insert(record.block.0 * 8 + u64::from(sector), lsn);
            }
        }
        let size = self.node.volume.as_ref().expect("it says so").size_bytes();
        // The group that the position cuts: of its older part a member that was learnt since may never have been sent what
        // its newer part covers.
        let cut = records.range(through.0 + 1..).next().map(|(_, record)| record.group);
        for (sector, lsn) in newest {
            if sector * 512 >= size {
                continue;
            }
            let bytes = &image[sector as usize * 512..sector as usize * 512 + 512];
            let found = crc32c(bytes);
            // Or the log holds a newer record of the same group: the older one is garbage.
            let group = records[&lsn].group;
            let legal = records.range(lsn..).any(|(_, r)| r.sum_of(sector) == Some(found))
                || records
                    .range(through.0 + 1..)
                    .take_while(|(lsn, _)| **lsn <= logged.0)
                    .any(|(_, r)| (r.group == group || Some(r.group) == cut) && r.sum_of(sector).is_some())
                // Or this node was never sent what is newer: a learner is sent what the watermark has passed only if a pin keeps
                // it, and a zeroed range that stays for its pinned blocks says nothing of its others (S6, T5).
                || self
                    .cluster
                    .as_ref()
                    .and_then(|cluster| cluster.newest_sum_of(sector, lsn, through))
                    .is_some_and(|sum| sum == found);
            assert!(
                legal,
                "{what} {through} has passed record {lsn}, but sector {sector} of the image holds {}",
                pattern::explain(sector * 512, bytes)
            );
        }
    }
}
