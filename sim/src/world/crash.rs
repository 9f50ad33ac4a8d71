//! How the world ends a life, and what becomes of what was under way: a killed process leaves late operations that land
//! in its successor's life, a loss of power tears what no sync covered, a loss of all logs leaves backing and journal.

use super::*;
use crate::journal;

/// An operation on the backing that the process which asked for it did not live to see ended.
pub(super) enum Late {
    /// These bytes are written. On a memory tier they still lie in frames, at these parts.
    Write { offset: usize, bytes: Vec<u8>, parts: Parts },
    /// These bytes are read into frames of a memory tier.
    Read { frames: Frames, bytes: Vec<u8> },
    /// These bytes are written to the journal. What the device fetches late from frames that are in use again does not
    /// match its checksum, so the batch stays incomplete: as if a part of it had not landed.
    Journal { offset: usize, bytes: Vec<u8> },
}

impl World {
    fn landing(&self) -> Landing {
        self.setup.crash_plan.map_or(Landing::Random, |p| p.landing)
    }

    pub(super) fn crash_now(&mut self, mut crash: Crash) {
        trace!(self, "CRASH {crash:?} at point {}", self.points);
        let now = self.tick();
        self.crashes += 1;
        if self.node.layout.kind == TierKind::Memory && crash == Crash::ProcessKilled {
            self.finish_some_effects();
        }
        self.collect_counters();
        self.node.checkpoint_is_alone |= !self.checkpoint_is_at_rest();
        if !self.node.serving {
            self.coverage.see("crash while recovering");
        }
        let writes_backing = |op: &Op| {
            matches!(op.kind, OpKind::BackingWrite { .. } | OpKind::BackingZero { .. } | OpKind::BackingSync { .. })
        };
        if self.node.ops.values().any(writes_backing) || self.backing.unsynced() > 0 {
            self.coverage.see("crash during destage");
        }
        self.node.volume = None;
        self.node.serving = false;
        if self.damaged {
            self.damage_carried = true;
        }
        // What the backing was told in an earlier life and has not done yet stays due, unless the power went.
        let here = self.at;
        self.agenda.retain(|_, (node, due)| *node != here || !due.dies_with_process());
        let early = self.agenda.extract_if(.., |_, (node, due)| *node == here && due.is_late());
        let mut ghosts: Vec<Late> = early.filter_map(|(_, (_, due))| due.late()).collect();
        self.liar_backlog = 0;
        // What was sent to a backing elsewhere does not know that its sender has no power.
        let ends = if self.cluster.is_some() { Crash::ProcessKilled } else { crash };
        ghosts.extend(self.abandon_operations(ends));
        self.node.forget_requests();
        if self.node.layout.kind == TierKind::Flash {
            self.node.arena.fill(0xdb);
        }
        if self.cluster.is_some() {
            return self.node_dies(crash, ghosts);
        }
        for client in &mut self.clients {
            *client = Client::default();
        }
        match crash {
            Crash::ProcessKilled => self.coverage.see("process killed"),
            Crash::PowerLost => {
                self.coverage.see("power lost");
                for late in std::mem::take(&mut ghosts) {
                    self.late_write_ends(late);
                }
                let landing = self.landing();
                self.backing.power_loss(landing, &mut self.random);
                self.journal.power_loss(landing, &mut self.random);
                self.journal_found = None;
                self.node.tier.power_loss(landing, &mut self.random);
                if self.node.layout.kind == TierKind::Memory {
                    crash = Crash::LogsLost;
                }
            }
            Crash::LogsLost => {}
        }
        if crash == Crash::LogsLost {
            self.lose_all_logs(std::mem::take(&mut ghosts), now);
        } else {
            if crash == Crash::PowerLost {
                self.oracle.power_lost(now);
            } else {
                self.oracle.process_killed(now);
            }
            self.audit =
                Some(Audit { node: self.at, next: 0, durable: crash == Crash::PowerLost, failures: 0, settle: true });
            self.metadata_may_rot();
        }
        let down = self.micros(1_000_000);
        self.ghosts_may_land(ghosts);
        self.schedule(down, Due::Restart);
    }

    /// The next volume begins with the image alone.
    fn lose_all_logs(&mut self, ghosts: Vec<Late>, now: Moment) {
        self.coverage.see("all logs lost");
        // Nothing replays a log here, so nothing waits for the last writes: they land, in part, or never.
        for late in ghosts {
            self.late_write_ends(late);
        }
        if let Some(found) = journal::newest(&VOLUME_UUID, &self.journal.current) {
            self.coverage.see("batch replayed after all logs were lost");
            journal::apply(&found, &self.journal.current, self.size_promised, &mut self.backing.current);
        }
        self.journal = Media::new(self.journal.current.len());
        self.journal_found = None;
        // Whoever makes a new volume of the image has synced it before, and written again what a failed sync had
        // dropped: the image that the new volume begins with is what lies on the medium.
        self.backing.sync(self.backing.mark());
        self.backing.durable.clone_from(&self.backing.current);
        self.node.tier = Media::new(self.node.tier.current.len());
        self.node.formatted = false;
        self.node.term = Term(0);
        if !self.damage_carried {
            self.oracle.all_logs_lost(&self.backing.current, now);
        }
        self.audit = None;
    }

    /// Writes that an earlier life has sent and nobody has seen the end of land at some time, or never.
    fn ghosts_may_land(&mut self, ghosts: Vec<Late>) {
        for late in ghosts {
            // Some never land.
            let keep = match self.landing() {
                Landing::Nothing => false,
                Landing::Everything => true,
                Landing::Random => self.random.below(4) > 0,
            };
            if keep {
                let wait = self.micros(4_000_000);
                self.schedule(wait, Due::Ghost(late));
            }
        }
    }

    /// The volume of this node is opened anew: what it had asked for is nobody's any more, or comes late.
    pub(super) fn volume_ends(&mut self) -> Vec<Late> {
        let here = self.at;
        self.agenda.retain(|_, (node, due)| *node != here || !due.dies_with_volume());
        let ghosts = self.abandon_operations(Crash::ProcessKilled);
        self.node.volume = None;
        self.node.serving = false;
        self.node.forget_requests();
        if self.node.layout.kind == TierKind::Flash {
            self.node.arena.fill(0xdb);
        }
        ghosts
    }

    /// Makes of the writes in flight what the end of a process makes of them.
    pub(super) fn abandon_operations(&mut self, crash: Crash) -> Vec<Late> {
        let mut ghosts = Vec::new();
        let landing = self.landing();
        let power = crash == Crash::PowerLost;
        for (_, op) in std::mem::take(&mut self.node.ops) {
            match op.kind {
                OpKind::TierWrite { offset, bytes, .. } => {
                    if self.node.layout.kind == TierKind::Flash
                        && self.node.tier.write_torn(offset, &bytes, landing, &mut self.random)
                    {
                        self.coverage.see("torn tier write at a crash");
                    }
                }
                // A fence has aborted it: no device fetches its bytes any more.
                OpKind::BackingWrite { bytes, .. } if bytes.is_empty() => {}
                OpKind::BackingWrite { offset, bytes, parts } => ghosts.push(Late::Write { offset, bytes, parts }),
                OpKind::BackingZero { offset, length } => {
                    ghosts.push(Late::Write { offset, bytes: vec![0; length], parts: Parts::new() });
                }
                OpKind::BackingRead { at, frames, early } => {
                    let bytes = early.unwrap_or_else(|| self.backing_bytes(at, frames.len()));
                    ghosts.push(Late::Read { frames, bytes });
                }
                OpKind::JournalWrite { offset, bytes, .. } => ghosts.push(Late::Journal { offset, bytes }),
                OpKind::BackingSync { .. }
                | OpKind::JournalSync { .. }
                | OpKind::TierSync { .. }
                | OpKind::TierRead { .. }
                | OpKind::TierScan { .. }
                | OpKind::Send { .. }
                | OpKind::Merge { .. } => {}
            }
        }
        if power {
            for late in std::mem::take(&mut ghosts) {
                if self.late_write_ends(late) {
                    self.coverage.see("torn backing write at a crash");
                }
            }
        }
        // Only memory outlives the process whose requests point into it.
        let memory = self.node.layout.kind == TierKind::Memory;
        ghosts.retain(|late| memory || !matches!(late, Late::Read { .. }));
        ghosts
    }

    /// A memory tier keeps what the process stored before it died, which may be any number of the effects that it
    /// had decided on, the last of them half done.
    fn finish_some_effects(&mut self) {
        let mut left = self.random.below(4);
        while let Some(effect) = self.node.volume.as_mut().and_then(|v| v.poll_effect()) {
            digest::volume_decided(self.now.0, self.at, &effect);
            if let Effect::TierWrite { at, head, .. } = &effect {
                let at = at.0 as usize * BLOCK;
                if land(&mut self.node.tier.current, at, head, Landing::Random, &mut self.random) {
                    self.coverage.see("torn tier write at a crash");
                }
            }
            let Effect::Describe { index, bytes } = effect else { break };
            let at = self.node.layout.table_first as usize * BLOCK + index as usize * DESCRIPTOR_BYTES;
            let entry = &mut self.node.tier.current[at..at + DESCRIPTOR_BYTES];
            if left == 0 {
                // Stored in five steps: the mark in place of the position, the rest, the position.
                let steps = self.random.below(5) as usize;
                if steps > 0 {
                    entry[..8].copy_from_slice(&DESCRIPTOR_UNFINISHED.to_le_bytes());
                    entry[8..8 * steps].copy_from_slice(&bytes[8..8 * steps]);
                }
            } else {
                entry.copy_from_slice(&bytes);
                if self.cluster.is_some()
                    && let Ok(Some(record)) = Descriptor::decode(&VOLUME_UUID, u64::from(index), &bytes)
                {
                    self.recorded(&record, Some(FrameId(index)));
                }
            }
            if left == 0 {
                break;
            }
            left -= 1;
        }
    }

    /// A write that nobody waits for any more lands, in part, or never. True when it was torn. Reads are forgotten.
    fn late_write_ends(&mut self, late: Late) -> bool {
        let landing = self.landing();
        match late {
            Late::Write { offset, bytes, .. } => self.backing.write_torn(offset, &bytes, landing, &mut self.random),
            Late::Journal { offset, bytes } => {
                self.journal_found = None;
                self.journal.write_torn(offset, &bytes, landing, &mut self.random)
            }
            Late::Read { .. } => false,
        }
    }

    /// The backing's lock is free: nothing of an earlier life is under way any more.
    pub(super) fn ghosts_end(&mut self) {
        let here = self.at;
        let early: Vec<_> =
            self.agenda.extract_if(.., |_, (node, due)| *node == here && matches!(due, Due::Ghost(_))).collect();
        for (_, (_, due)) in early {
            if let Due::Ghost(late) = due {
                self.ghost_lands(late);
            }
        }
    }

    pub(super) fn ghost_lands(&mut self, late: Late) {
        let landing = self.landing();
        let (offset, mut bytes, parts) = match late {
            Late::Write { offset, bytes, parts } => (offset, bytes, parts),
            Late::Journal { .. } => {
                trace!(self, "a late write to the journal lands");
                if self.late_write_ends(late) {
                    self.coverage.see("torn backing write at a crash");
                }
                return;
            }
            Late::Read { frames, bytes } => {
                trace!(self, "a late read of {} bytes lands in {frames:?}", bytes.len());
                for (i, &frame) in frames.iter().enumerate() {
                    let at = self.frame_at(frame);
                    land(
                        &mut self.node.tier.current,
                        at,
                        &bytes[i * BLOCK..(i + 1) * BLOCK],
                        landing,
                        &mut self.random,
                    );
                }
                return self.coverage.see("late backing read landed in the arena");
            }
        };
        if self.node.layout.kind == TierKind::Memory && !parts.is_empty() {
            // The device fetches them now.
            bytes = self.bytes_of(&parts);
        }
        trace!(self, "a late write of {} bytes lands at {offset}", bytes.len());
        self.assert_pinned(offset, bytes.len());
        if self.backing.write_torn(offset, &bytes, landing, &mut self.random) {
            self.coverage.see("torn backing write at a crash");
        }
        self.coverage.see("late backing write landed in the next life");
    }
}
