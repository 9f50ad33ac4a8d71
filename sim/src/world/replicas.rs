//! What must hold between nodes, at any moment: what was acknowledged is at every recorded member that is up in its
//! recorded incarnation, nothing is answered outside the lease, and late writes hit only what is pinned.

use super::*;

impl World {
    /// After each turn of a cluster's node.
    pub(super) fn inspect_cluster(&mut self) {
        self.look_after_volume();
        self.look_for_faults();
        let record = &self.cluster().coordinator.record;
        let owner = self.node_at(index_of(record.owner));
        let Some(volume) = owner.volume.as_ref().filter(|_| owner.part.owns == Some(record.term)) else { return };
        let committed = volume.figures().committed;
        let destaged = volume.status(owner.clock.shows(self.now)).destaged;
        let written_again = self.cluster().backing_behind.is_some_and(|behind| destaged >= behind);
        for member in &record.members {
            let node = self.node_at(index_of(member.node));
            let Some(follower) = node.volume.as_ref().filter(|_| node.incarnation == *member) else { continue };
            if matches!(follower.status(node.clock.shows(self.now)).phase, Phase::Recovering) {
                continue;
            }
            let held = follower.figures().held;
            assert!(
                held >= committed || !volume.figures().serving,
                "the owner counts {committed} as committed, and the recorded member {member:?} holds only {held}"
            );
        }
        if written_again {
            self.cluster_mut().backing_behind = None;
        }
    }

    /// The backing fails an operation of this node.
    pub(super) fn note_backing_failure(&mut self) {
        let volume = self.node.volume.as_ref().filter(|_| !self.is_former_owner());
        let accepted = volume.map(|volume| volume.figures().accepted);
        if let (Some(cluster), Some(accepted)) = (&mut self.cluster, accepted) {
            cluster.backing_behind = cluster.backing_behind.max(Some(accepted));
        }
    }

    /// Every copy that is wanted is there and has everything, and no former owner is feared any more.
    pub(super) fn cluster_is_whole(&self) -> bool {
        let record = &self.cluster().coordinator.record;
        let accepted = |node: &Node| node.volume.as_ref().map(|volume| volume.figures().accepted);
        let held = |node: &Node| node.volume.as_ref().map(|volume| volume.figures().held);
        let whole = |member: &Incarnation| {
            let node = self.node_at(index_of(member.node));
            let knows_of_no_pins = node.volume.as_ref().is_some_and(|volume| volume.figures().mark.pins.is_empty());
            node.incarnation == *member && held(node) == accepted(&self.node) && knows_of_no_pins
        };
        record.log != LogState::Released
            && record.members.len() == self.cluster().setup.peers + 1
            && record.unfenced.is_empty()
            && record.members.iter().all(whole)
    }

    /// Nobody serves, and nobody will by itself: a new volume is opened, and one whose logs are all lost, by the
    /// operator's word, where the backing is a crash image.
    pub(super) fn look_after_volume(&mut self) {
        let record = self.cluster().coordinator.record.clone();
        if record.log == LogState::Released {
            let may = self.stage != Stage::LastStop && self.stage != Stage::Done;
            if may {
                self.open_by_operator(false);
            }
            return;
        }
        let is_there = |member: &Incarnation| self.node_at(index_of(member.node)).incarnation == *member;
        if record.members.iter().any(is_there) {
            self.cluster_mut().lost_since = None;
            return;
        }
        if record.log == LogState::Through {
            return self.open_by_operator(false);
        }
        let now = self.now;
        let since = *self.cluster_mut().lost_since.get_or_insert(now);
        let some_are_left = self.power_was_cut_everywhere(&record);
        let by_itself = some_are_left && self.media_have_what_was_flushed(&record);
        if now - since < Duration::from_secs(if by_itself { 120 } else { 3 }) {
            return;
        }
        if some_are_left {
            return self.take_synced(&record);
        }
        if self.in_quarantine() {
            self.coverage.see("every log lost in quarantine");
            self.stage = Stage::Done;
            return;
        }
        self.open_by_operator(true);
    }

    /// What was not synced is lost, and the operator says so where a log is left.
    fn take_synced(&mut self, record: &Record) {
        let (now, here) = (self.now, self.at);
        if now < self.cluster().commanded_at + Duration::from_secs(2) {
            return;
        }
        let is_left = |(_, node): &(usize, &Node)| {
            let own = node.incarnation;
            let named = record.members.iter().any(|member| member.is_earlier_life_of(own));
            named && node.part.ownership.is_some() && !node.is_paused(now)
        };
        let Some((node, _)) = self.each_node().find(is_left) else { return };
        self.cluster_mut().commanded_at = now;
        self.cluster_mut().loss_accepted = true;
        self.coverage.see("what is synced taken by the operator's word");
        self.command_at(node, forebay_core::ownership::Command::TakeSynced);
        self.turn_to(here);
    }

    fn open_by_operator(&mut self, accept_loss: bool) {
        let (now, here) = (self.now, self.at);
        if now < self.cluster().commanded_at + Duration::from_secs(2) {
            return;
        }
        let is_up = |(_, node): &(usize, &Node)| node.part.ownership.is_some() && !node.is_paused(now);
        let Some((node, _)) = self.each_node().find(is_up) else { return };
        self.cluster_mut().commanded_at = now;
        if accept_loss {
            self.coverage.see("loss accepted");
            self.cluster_mut().loss_accepted = true;
            // Nobody may write any more whose log nobody has: the operator has seen to that.
            for i in 0..self.away.len() {
                self.turn_to(i);
                self.ghosts_end();
            }
        }
        self.open_at(node, accept_loss);
        self.turn_to(here);
    }

    /// A write was acknowledged here: every recorded member that is up holds it. One that is down and comes back is found
    /// out by what is read then.
    pub(super) fn assert_members_hold(&self, id: WriteId) {
        self.assert_not_handed_over("a write is answered");
        let (offset, length) = self.oracle.range(id);
        let first = offset.next_multiple_of(SECTOR_BYTES);
        if self.cluster.is_none() || first + SECTOR_BYTES > offset + length {
            return;
        }
        let mut bytes = [0; SECTOR_BYTES as usize];
        pattern::fill(id, first, &mut bytes);
        let sector = (first % BLOCK_BYTES / SECTOR_BYTES) as u32;
        let wanted = (BlockIndex::of_byte(first).0, sector, crc32c(&bytes));
        let Some(&lsn) = self.cluster().first.get(&wanted) else { return };
        for member in &self.cluster().coordinator.record.members {
            let node = self.node_at(index_of(member.node));
            let Some(volume) = node.volume.as_ref().filter(|_| node.incarnation == *member) else { continue };
            if matches!(volume.status(node.clock.shows(self.now)).phase, Phase::Recovering) {
                continue;
            }
            let held = volume.figures().held;
            assert!(held >= lsn, "write {id}, record {lsn}, is acknowledged, and {member:?} holds only {held}");
        }
    }

    /// Below `min_peers` the backing has it as well (A1), and where the record lets nothing depend on logs (A5). What a former
    /// owner may still write to is read from the log.
    pub(super) fn assert_backed(&mut self, id: WriteId) {
        let Some(cluster) = &self.cluster else { return };
        let copies = cluster.coordinator.record.members.len() as u32 - 1;
        let own = self.node.part.owns == Some(cluster.coordinator.record.term);
        let alone = copies < cluster.setup.min_peers || cluster.coordinator.record.log == LogState::Through;
        if own && alone && !self.in_quarantine() {
            self.coverage.see("write acknowledged by the backing for want of peers");
            let why = "the backing after an acknowledgement with too few peers, or before logs count";
            self.oracle.image_has(&self.backing.current, id, why);
        }
    }

    /// It may answer: block status is a read, too.
    pub(super) fn has_lease(&self) -> bool {
        self.cluster.is_none() || self.clock() < self.node.part.lease_until
    }

    /// L3: the look at the clock is the last thing before a read is answered or the backing is written.
    pub(super) fn assert_lease(&self, what: &str) {
        if self.cluster.is_some() {
            // What was decided before ownership ended the lease may be carried out after, at the same instant: it was right then.
            let cut = self.node.part.lease_cut.filter(|(at, _)| *at == self.now);
            let until = cut.map_or(Instant(0), |(_, until)| until).max(self.node.part.lease_until);
            let now = self.clock();
            assert!(now < until, "{what} at {now:?}, and the lease ended at {until:?}");
            self.assert_lease_is_granted(what);
            self.assert_not_handed_over(what);
        }
    }

    /// This node believes to own the volume, and does not.
    pub(super) fn is_former_owner(&self) -> bool {
        self.cluster.is_some() && self.node.part.owns != Some(self.cluster().coordinator.record.term)
    }

    /// What the backing has is in this node's log, or was: no other writes to it, no former owner any more and no successor yet.
    pub(super) fn answers_for_backing(&self) -> bool {
        let owns = self.node.part.owns.is_some() && !self.is_former_owner();
        self.cluster.is_none() || (owns && !self.in_quarantine())
    }

    /// A former owner's write lands: its successor has pinned what it hits (D2, D3, T5). Of a window only what its records
    /// are about, unless a later one of the former owners may have written what was pinned once more: whole blocks (T6).
    pub(super) fn assert_pinned(&mut self, offset: usize, length: usize) {
        let Some(cluster) = &self.cluster else { return };
        let record = &cluster.coordinator.record;
        let owner = self.node_at(index_of(record.owner));
        let begun = owner.part.owns == Some(record.term) && !record.unfenced.is_empty();
        let Some(volume) = owner.volume.as_ref().filter(|_| begun) else { return };
        let mark = volume.figures().mark;
        let mut pinned = BTreeSet::new();
        for pin in &mark.pins {
            let once_more = record.unfenced.iter().any(|former| former.term > pin.term);
            let bytes = if once_more { BLOCK_BYTES } else { u64::from(self.setup.backing_align) };
            let align = bytes / SECTOR_BYTES;
            let sectors_of_part = pin.part.block.0 * 8..(pin.part.block.0 + u64::from(pin.part.blocks)) * 8;
            pinned.extend(sectors_of_part);
            let through = cluster.end_of_group(pin.above, pin.through);
            for (_, (_, logged)) in cluster.log.range(pin.above.0 + 1..=through.0) {
                let first = logged.block.0 * 8;
                let rounded = logged.sectors.iter().map(|&(sector, _)| (first + u64::from(sector)) / align * align);
                pinned.extend(rounded.flat_map(|first| first..first + align));
            }
        }
        self.coverage.see("late write of a former owner landed in quarantine");
        let (first, last) = (offset as u64 / SECTOR_BYTES, (offset + length - 1) as u64 / SECTOR_BYTES);
        let open = (first..=last).find(|sector| !pinned.contains(sector));
        assert!(
            open.is_none(),
            "a former owner writes [{offset}+{length}], and sector {open:?} is not pinned: {mark:?}",
        );
    }

    /// T3: the greatest watermark of all becomes the own one, and what it passes in the own log ends: the backing has it
    /// durably, or the own log has newer content of the same group (D7).
    pub(super) fn assert_watermark_of_all(&self, watermark: Lsn) {
        let volume = self.node.volume.as_ref().expect("it is open");
        let figures = volume.figures();
        let two_late = self.cluster().coordinator.record.unfenced.len() > 1;
        if watermark <= figures.mark.watermark || two_late || self.cluster().loss_accepted {
            return; // the own one; or late writes of others may have hidden it (T5)
        }
        let passed = || self.node.records.range(figures.mark.watermark.0 + 1..=watermark.0);
        let mut newest: BTreeMap<u64, u64> = BTreeMap::new();
        for (&lsn, record) in passed() {
            newest.extend(record.sectors.iter().map(|&(sector, _)| (record.block.0 * 8 + u64::from(sector), lsn)));
        }
        for (sector, lsn) in newest {
            let at = (sector * SECTOR_BYTES) as usize;
            let Some(bytes) = self.backing.durable.get(at..at + SECTOR_BYTES as usize) else { continue };
            let found = crc32c(bytes);
            let written = self
                .each_node()
                .any(|(_, node)| node.records.range(lsn..).any(|(_, r)| r.sum_of(sector) == Some(found)));
            let group = self.node.records[&lsn].group;
            let newer = self.node.records.range(lsn + 1..=figures.held.0.max(lsn + 1));
            let superseded = newer.filter(|(_, r)| r.group == group).any(|(_, r)| r.sum_of(sector).is_some());
            assert!(
                written || superseded,
                "{:?} takes over the watermark {watermark}, which passes its record {lsn}: sector {sector} of the backing holds {}",
                self.node.incarnation,
                pattern::explain(sector * SECTOR_BYTES, bytes)
            );
        }
    }

    /// In quarantine the backing is no crash image by itself (T7).
    pub(super) fn in_quarantine(&self) -> bool {
        self.cluster.as_ref().is_some_and(|cluster| !cluster.coordinator.record.unfenced.is_empty())
    }

    /// Where a former owner may still write, as its successor has been told.
    pub(super) fn host_of(&self, index: usize) -> Host {
        let node = self.node_at(index);
        Host { machine: [index as u8; 16], boot: std::array::from_fn(|i| node.boot.to_le_bytes()[i % 8]) }
    }

    /// Nothing that this former owner has begun can reach the backing any more.
    pub(super) fn writes_no_more(&self, former: &Unfenced) -> bool {
        let index = index_of(former.node);
        let node = self.node_at(index);
        // Who has won a term and reads of a later one before it owns the volume lets the lock go.
        let gave_up = node.part.owns != Some(former.term) && node.part.knows_of_later(former.term);
        let lives = node.part.may_write(former.term) && !gave_up;
        let late = self.agenda.values().any(|(at, due)| *at == index && matches!(due, Due::Ghost(_)));
        !lives && !late
    }

    /// The backing refuses these owners from here on, and has aborted or done what they had queued (T6).
    pub(super) fn fence_former_owners(&mut self, record: &Record) {
        let here = self.at;
        for former in &record.unfenced {
            self.turn_to(index_of(former.node));
            self.ghosts_end();
            if self.node.part.owns == Some(former.term) {
                self.coverage.see("living owner fenced");
                self.node.part.fenced = true;
                self.abort_backing_writes();
            }
        }
        self.turn_to(here);
    }

    /// The server of the image takes the lock of the term that this node owns. It looks after its lock, and sees that by then.
    pub(super) fn revoke_lock(&mut self, node: usize, until: Instant) {
        self.turn_to(node);
        let Some(term) = self.node.part.owns.filter(|_| !self.node.part.fenced) else { return };
        self.coverage.see("lock taken from a living owner");
        self.ghosts_end();
        self.node.part.fenced = true;
        self.abort_backing_writes();
        self.schedule(until - self.now, Due::LockLost(term));
    }

    /// What this node has under way to the backing is done in part, or not at all, and fails.
    fn abort_backing_writes(&mut self) {
        for op in self.node.ops.values_mut() {
            match &mut op.kind {
                OpKind::BackingWrite { offset, bytes, .. } => {
                    let bytes = std::mem::take(bytes);
                    self.backing.write_torn(*offset, &bytes, Landing::Random, &mut self.random);
                }
                OpKind::BackingZero { offset, length } => {
                    let bytes = vec![0; std::mem::take(length)];
                    self.backing.write_torn(*offset, &bytes, Landing::Random, &mut self.random);
                }
                OpKind::BackingSync { .. } => {}
                OpKind::BackingRead { .. }
                | OpKind::TierWrite { .. }
                | OpKind::TierSync { .. }
                | OpKind::TierRead { .. }
                | OpKind::TierScan { .. }
                | OpKind::JournalWrite { .. }
                | OpKind::JournalSync { .. }
                | OpKind::Send { .. }
                | OpKind::Merge { .. } => continue,
            }
            op.error = Some(IoError::Gone);
        }
    }
}
