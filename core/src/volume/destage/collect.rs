//! What goes out next is chosen: records of one group, in chunks sorted by address, or a journaled batch (rule 2 is decided here).

use super::*;

impl Volume {
    /// Chooses what goes out next. False: nothing may be chosen now.
    pub(super) fn collect(&mut self) -> bool {
        if self.journal.is_busy() {
            return self.apply_batch();
        }
        // A proof that comes after it was told to be quiet is for whoever is next: nothing may be under way by then.
        let keeps_quiet = self.is_quiescing() && !planted!(self, rewrites_when_quiet);
        if self.pins_are_proven() && !self.must_journal() && !keeps_quiet {
            let settled = self.destage.in_flight == 0 && self.destage.unsynced_since.is_none();
            return settled && !self.destage.syncing && self.rewrite_pins();
        }
        // What was promised when the backing has it is still to come about: only then is the volume quiet.
        let awaited = self.acks.await_backing() && !planted!(self, quiesces_what_is_awaited);
        if self.is_leaving_to_member() && !self.must_journal() && !awaited {
            return false;
        }
        let Some(first) = self.index.cursor() else { return false };
        if !self.is_eligible(first) || self.round_full() || self.destage.range_in_flight || self.destage.syncing {
            return false;
        }
        // Everything chosen before is durable in the backing.
        let settled = self.destage.in_flight == 0 && self.destage.unsynced_since.is_none();
        if self.wants_journal() {
            self.collect_batch(settled);
            return false;
        }
        let descriptor = self.index.get(first).descriptor;
        if descriptor.group != self.destage.group && !self.enter_group(descriptor.group, settled) {
            return false;
        }
        if !self.journal_is_erased() {
            return false;
        }
        self.destage.repeatable &= self.index.get(first).covers_its_block();
        if matches!(descriptor.kind, Kind::ZeroBlocks { .. }) {
            // May overlap anything before or after it: alone.
            if self.destage.in_flight > 0 {
                return false;
            }
            self.choose(first, descriptor.lsn);
            return true;
        }
        self.collect_chunk(descriptor.group);
        true
    }

    /// What is chosen next is a journaled batch: when everything before it is durable, and the checkpoint says so.
    fn collect_batch(&mut self, settled: bool) {
        let recorded =
            self.positions.destaged() >= self.destage.collected || planted!(self, next_group_before_checkpoint);
        if settled && recorded {
            self.begin_batch();
        } else if settled && self.positions.durable() < self.destage.collected && !planted!(self, await_superseded) {
            // What was chosen last was superseded before it went out: the sync that ends it waits for nothing.
            self.destage.unsynced_since = Some(self.now);
        }
    }

    /// Rule 2. False: the group before is not done with.
    fn enter_group(&mut self, group: Group, settled: bool) -> bool {
        let complete =
            settled && (self.vouched(self.destage.collected) || planted!(self, next_group_before_checkpoint));
        if !complete && !planted!(self, ignore_groups) {
            return false;
        }
        self.destage.group = group;
        self.destage.group_after = self.destage.collected;
        self.destage.repeatable = true;
        true
    }

    /// Chooses the oldest records of a group that may be chosen, as many as fit.
    fn collect_chunk(&mut self, group: Group) {
        let mut chunk: Vec<(BlockIndex, u32, Lsn)> = Vec::new();
        while let Some(id) = self.index.cursor() {
            let d = self.index.get(id).descriptor;
            let fits = chunk.len() < CHUNK_RECORDS_MAX
                && (chunk.len() as u64) * BLOCK_BYTES + self.destage.unsynced_bytes < self.destage.round_bytes;
            let range = matches!(d.kind, Kind::ZeroBlocks { .. });
            if !fits || d.group != group || range || !self.is_eligible(id) {
                break;
            }
            self.destage.repeatable &= self.index.get(id).covers_its_block();
            chunk.push((d.block, id, d.lsn));
            self.index.set_state(id, State::Queued);
            self.index.advance_cursor();
            self.destage.collected = d.lsn;
        }
        self.read_ahead(&chunk);
        // By address, and by age within a block: rule 3 defers, it does not reorder.
        chunk.sort_unstable_by_key(|&(block, _, lsn)| (block, lsn));
        self.destage.queue.extend(chunk.into_iter().map(|(_, id, lsn)| (id, lsn)));
    }

    fn choose(&mut self, id: u32, lsn: Lsn) {
        self.index.set_state(id, State::Queued);
        self.index.advance_cursor();
        self.destage.collected = lsn;
        self.destage.queue.push_back((id, lsn));
    }
}
