//! What must hold between nodes, at any moment: what was acknowledged is at every recorded member that is up in its
//! recorded incarnation, nothing is answered outside the lease, and late writes hit only what is pinned.

use super::*;

impl World {
    /// After each turn of a cluster's node.
    pub(super) fn inspect_cluster(&mut self) {
        self.notice_loss();
        let record = &self.cluster().coordinator.record;
        let owner = self.node_at(index_of(record.owner));
        let Some(volume) = owner.volume.as_ref().filter(|_| owner.part.owns == Some(record.term)) else { return };
        let committed = volume.figures().committed;
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
    }

    /// Every copy that is wanted is there and has everything, and no former owner is feared any more.
    pub(super) fn cluster_is_whole(&self) -> bool {
        let record = &self.cluster().coordinator.record;
        let accepted = |node: &Node| node.volume.as_ref().map(|volume| volume.figures().accepted);
        let held = |node: &Node| node.volume.as_ref().map(|volume| volume.figures().held);
        let whole = |member: &Incarnation| {
            let node = self.node_at(index_of(member.node));
            node.incarnation == *member && held(node) == accepted(&self.node)
        };
        record.members.len() == self.cluster().setup.peers + 1
            && record.unfenced.is_empty()
            && record.members.iter().all(whole)
    }

    /// No recorded member has its log any more: an operator looks at it after a while, and takes the backing for the
    /// volume, where that is a crash image.
    pub(super) fn notice_loss(&mut self) {
        let record = self.cluster().coordinator.record.clone();
        let is_there = |member: &Incarnation| self.node_at(index_of(member.node)).incarnation == *member;
        if record.members.iter().any(is_there) {
            self.cluster_mut().lost_since = None;
            return;
        }
        let now = self.now;
        let since = *self.cluster_mut().lost_since.get_or_insert(now);
        let patience = if self.power_was_cut_everywhere(&record) { 120 } else { 2 };
        if now - since < Duration::from_secs(patience) {
            return;
        }
        let is_new = |(_, node): &(usize, &Node)| {
            let new = |volume: &Volume| {
                let figures = volume.figures();
                volume.status(self.now).phase == Phase::Following
                    && (figures.term, figures.accepted) == (Term(0), Lsn(0))
            };
            node.volume.as_ref().is_some_and(new) && !node.is_paused(now)
        };
        let new = self.each_node().find(is_new).map(|(node, _)| node);
        let waits = self.each_node().find(|(_, node)| node.part.starting && !node.is_paused(now)).map(|(node, _)| node);
        if self.in_quarantine() {
            self.coverage.see("every log lost in quarantine");
            self.stage = Stage::Done;
        } else if let Some(node) = new {
            self.accept_loss(node, record);
        } else if let Some(node) = waits {
            self.turn_to(node);
            self.make_tier_anew(&record);
        }
    }

    /// Everything that may still land has landed, and the volume begins anew at this node with what the backing has.
    fn accept_loss(&mut self, node: usize, record: Record) {
        self.coverage.see("loss accepted");
        for i in 0..self.away.len() {
            self.turn_to(i);
            self.ghosts_end();
        }
        let now = self.tick();
        self.backing.sync(self.backing.mark());
        self.backing.durable.clone_from(&self.backing.current);
        self.oracle.all_logs_lost(&self.backing.current, now);
        self.turn_to(node);
        let new = Record {
            term: Term(record.term.0 + 1),
            config: Config(1),
            owner: self.node.incarnation.node,
            host: self.host_of(self.at),
            members: vec![self.node.incarnation],
            ..record.clone()
        };
        self.cluster_mut().coordinator.force(&record, new.clone());
        self.begin_term(new, Lsn(0), None);
    }

    /// A write was acknowledged here: every recorded member that is up holds it. One that is down and comes back is found
    /// out by what is read then.
    pub(super) fn assert_members_hold(&self, id: WriteId) {
        let (offset, length) = self.oracle.range(id);
        let first = offset.next_multiple_of(SECTOR_BYTES);
        if self.cluster.is_none() || first + SECTOR_BYTES > offset + length {
            return;
        }
        let mut bytes = [0; SECTOR_BYTES as usize];
        pattern::fill(id, first, &mut bytes);
        let wanted = ((first % BLOCK_BYTES / SECTOR_BYTES) as u32, crc32c(&bytes));
        let is_it = |record: &Logged| record.block == BlockIndex::of_byte(first) && record.sectors.contains(&wanted);
        let Some(lsn) = self.node.records.iter().find(|(_, record)| is_it(record)).map(|(&lsn, _)| Lsn(lsn)) else {
            return;
        };
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

    /// Below `min_peers` the backing has it as well (A1). What a former owner may still write to is read from the log.
    pub(super) fn assert_backed(&mut self, id: WriteId) {
        let Some(cluster) = &self.cluster else { return };
        let copies = cluster.coordinator.record.members.len() as u32 - 1;
        let own = self.node.part.owns == Some(cluster.coordinator.record.term);
        if own && copies < cluster.setup.min_peers && !self.in_quarantine() {
            self.coverage.see("write acknowledged by the backing for want of peers");
            let why = "the backing after an acknowledgement with too few peers";
            self.oracle.image_has(&self.backing.current, id, why);
        }
    }

    /// L3: the look at the clock is the last thing before a read is answered or the backing is written.
    pub(super) fn assert_lease(&self, what: &str) {
        if self.cluster.is_some() {
            let (now, until) = (self.clock(), self.node.part.lease_until);
            assert!(now < until, "{what} at {now:?}, and the lease ended at {until:?}");
        }
    }

    /// This node believes to own the volume, and does not.
    pub(super) fn is_former_owner(&self) -> bool {
        self.cluster.is_some() && self.node.part.owns != Some(self.cluster().coordinator.record.term)
    }

    /// A former owner's write lands: its successor has pinned what it hits (D2, D3, T5).
    pub(super) fn assert_pinned(&mut self, offset: usize, length: usize) {
        let Some(cluster) = &self.cluster else { return };
        let record = &cluster.coordinator.record;
        let owner = self.node_at(index_of(record.owner));
        let begun = owner.part.owns == Some(record.term) && !record.unfenced.is_empty();
        let Some(volume) = owner.volume.as_ref().filter(|_| begun) else { return };
        let mark = volume.figures().mark;
        let align = u64::from(self.setup.backing_align) / SECTOR_BYTES;
        let mut pinned = BTreeSet::new();
        for pin in &mark.pins {
            let sectors_of_part = pin.part.block.0 * 8..(pin.part.block.0 + u64::from(pin.part.blocks)) * 8;
            pinned.extend(sectors_of_part);
            for (block, sectors) in cluster.log.range(pin.above.0 + 1..=pin.through.0).map(|(_, logged)| logged) {
                let rounded = sectors.iter().map(|&sector| (block.0 * 8 + u64::from(sector)) / align * align);
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
        let lives = node.volume.is_some() && node.part.owns == Some(former.term) && !node.part.fenced;
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
