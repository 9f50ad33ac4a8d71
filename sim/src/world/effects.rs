//! Effects: taken from the volume one by one, begun, and ended as events at a time that chance decides. What each device
//! makes of its own is in `tier.rs`, `backing.rs` and `journal.rs`; merges and copies happen in memory.

use super::*;

pub(super) enum OpKind {
    TierWrite { offset: usize, bytes: Vec<u8>, frames: Vec<FrameId> },
    TierSync { mark: u64 },
    TierRead { at: TierBlock, frames: Checks },
    TierScan { at: TierBlock, blocks: u32 },
    BackingRead { at: BlockIndex, frames: Frames, early: Option<Vec<u8>> },
    BackingWrite { offset: usize, bytes: Vec<u8>, parts: Parts },
    BackingZero { offset: usize, length: usize },
    BackingSync { mark: u64 },
    JournalWrite { offset: usize, bytes: Vec<u8>, frames: Vec<FrameId> },
    JournalSync { mark: u64 },
    Merge { target: FrameId, outcome: Outcome },
    Send { frames: Vec<FrameId> },
}

pub(super) struct Op {
    pub(super) kind: OpKind,
    pub(super) error: Option<IoError>,
}

/// A block's bytes outside `from..to` come from `base`.
struct Merging {
    target: FrameId,
    base: Source,
    from: u16,
    to: u16,
    block: BlockIndex,
    term: Term,
}

impl World {
    pub(super) fn pump(&mut self) {
        loop {
            if self.node.crash.is_some() {
                return;
            }
            let Some(effect) = self.node.volume.as_mut().and_then(|v| v.poll_effect()) else { break };
            digest::volume_decided(self.now.0, self.at, &effect);
            self.execute(effect);
            if self.stage == Stage::Done {
                return;
            }
            if self.point() {
                return;
            }
        }
        let Some(volume) = &self.node.volume else { return };
        let status = volume.status(self.clock());
        match status.phase {
            Phase::Recovering | Phase::Stopping => {}
            Phase::Following | Phase::Agreeing => {
                self.node.formatted = true;
                self.node.checkpoint_is_alone = false;
                if self.node.part.is_opening() && status.phase == Phase::Following {
                    self.tier_is_open();
                }
            }
            Phase::Serving => {
                if !self.node.serving && (self.cluster.is_none() || self.node.part.let_in) {
                    self.on_serving();
                }
            }
            Phase::Stopped => self.on_stopped(),
            Phase::Refused(reason) => {
                if self.node.tier_errors > 0 && !self.damaged {
                    // The device failed while the log was read: the operator tries again.
                    self.node.crash = Some(Crash::ProcessKilled);
                    return;
                }
                let may_be = self.damaged || self.rot == Some(Rot::Needed);
                assert!(may_be, "an undamaged tier was refused: {reason}");
                self.node.volume = None;
                self.refuse();
            }
        }
    }

    fn execute(&mut self, effect: Effect) {
        self.tick();
        if self.trace {
            trace!(self, "<- {}", brief_effect(self.setup.version, &effect));
        }
        match effect {
            Effect::Reply { id, result } => self.reply(id, result),
            Effect::FramesFree => self.wake_who_waits_for_frames(),
            Effect::Answer { id, result } => self.answered(id.0, result),
            Effect::Describe { index, bytes } => self.describe(index, &bytes),
            Effect::TierWrite { op, at, head, frames } => self.begin_tier_write(op, at, head, frames),
            Effect::TierSync { op } => self.begin_tier_sync(op),
            Effect::TierRead { op, at, frames } => self.begin_tier_read(op, at, frames),
            Effect::TierScan { op, at, blocks } => self.begin_tier_scan(op, at, blocks),
            Effect::BackingRead { op, at, frames } => self.begin_backing_read(op, at, frames),
            Effect::BackingWrite { op, offset, parts } => self.begin_backing_write(op, offset, parts),
            Effect::BackingZero { op, offset, length, hole: _ } => self.begin_backing_zero(op, offset, length),
            Effect::BackingSync { op } => self.begin_backing_sync(op),
            Effect::JournalWrite { op, at, head, frames, checks } => {
                self.begin_journal_write(op, at, head, frames, checks);
            }
            Effect::JournalSync { op } => self.begin_journal_sync(op),
            Effect::Merge { op, checks, target, base, from, to, block, term } => {
                self.merge(op, &checks, Merging { target, base, from, to, block, term });
            }
            Effect::Copy { source, target, start, length } => self.copy(source, target, start, length),
            Effect::Send(sending) => {
                let Sending { op, envelope, message, frames } = *sending;
                self.send(op, envelope, message, frames);
            }
            Effect::Report(report) => self.reported(report),
        }
    }

    pub(super) fn begin(&mut self, op: OpId, kind: OpKind, error: Option<IoError>, micros_max: u64, stall: u32) {
        let mut wait = self.micros(micros_max);
        let backing = match &kind {
            OpKind::BackingRead { .. }
            | OpKind::BackingWrite { .. }
            | OpKind::BackingZero { .. }
            | OpKind::BackingSync { .. }
            | OpKind::JournalWrite { .. }
            | OpKind::JournalSync { .. } => true,
            OpKind::TierWrite { .. }
            | OpKind::TierSync { .. }
            | OpKind::TierRead { .. }
            | OpKind::TierScan { .. }
            | OpKind::Send { .. }
            | OpKind::Merge { .. } => false,
        };
        let stalls = self.fault(stall);
        if stalls {
            wait = Duration::from_millis(self.random.range(100, 60_000));
            self.coverage.see(if backing { "backing stalled" } else { "tier stalled" });
        }
        if stalls || error.is_some() {
            match backing {
                true => self.note_trouble_until(self.now + wait),
                false => self.note_fault_until(self.now + wait, Mended::TakenOver),
            }
        }
        if error.is_some() {
            self.errors_injected = true;
            if !backing {
                self.node.tier_errors += 1;
            }
        }
        assert!(self.node.ops.insert(op.0, Op { kind, error }).is_none(), "{op:?} is used twice");
        self.schedule(wait, Due::Op(op.0));
    }

    pub(super) fn end_operation(&mut self, id: u64) {
        let Some(Op { kind, error }) = self.node.ops.remove(&id) else { panic!("operation {id} ends twice") };
        let mut outcome = match error {
            Some(error) => Outcome::Failed(error),
            None => Outcome::Ok,
        };
        let at_backing =
            matches!(kind, OpKind::BackingWrite { .. } | OpKind::BackingZero { .. } | OpKind::BackingSync { .. });
        if at_backing && error.is_some() {
            self.note_backing_failure();
        }
        match kind {
            OpKind::TierWrite { offset, bytes, frames } => self.end_tier_write(offset, &bytes, frames, error),
            OpKind::TierSync { mark } => self.end_tier_sync(mark, error),
            OpKind::TierRead { at, frames } => outcome = self.end_tier_read(at, frames, error),
            OpKind::TierScan { at, blocks } => {
                let from = at.0 as usize * BLOCK;
                outcome = Outcome::Bytes(self.node.tier.current[from..from + blocks as usize * BLOCK].to_vec());
            }
            OpKind::BackingRead { at, frames, early } => self.end_backing_read(at, &frames, early, error),
            OpKind::BackingWrite { offset, bytes, parts } => {
                for part in &parts {
                    self.unpin_source(part.frame);
                }
                self.end_backing_write(offset, bytes, error);
            }
            OpKind::BackingZero { offset, length } => {
                if error != Some(IoError::Unsupported) {
                    self.end_backing_write(offset, vec![0; length], error);
                }
            }
            OpKind::BackingSync { mark } => self.end_backing_sync(mark, error),
            OpKind::JournalWrite { offset, bytes, frames } => self.end_journal_write(offset, &bytes, frames, error),
            OpKind::JournalSync { mark } => self.end_journal_sync(mark, error),
            OpKind::Send { frames } => {
                for frame in frames {
                    self.unpin_source(frame);
                }
            }
            OpKind::Merge { target, outcome: merged } => {
                self.unpin_target(target);
                outcome = merged;
            }
        }
        self.hand(Event::Done { op: OpId(id), outcome });
    }

    fn merge(&mut self, op: OpId, checks: &Checks, merge: Merging) {
        let Merging { target, base, from, to, block, term } = merge;
        self.assert_writable(target, "a merge");
        assert!(from < to && usize::from(to) <= BLOCK, "a merge of [{from}, {to})");
        for (frame, _) in checks {
            self.assert_readable(*frame, "a merge");
        }
        let whole = checks.iter().all(|(frame, check)| self.check_holds(check, self.frame(*frame)));
        assert!(whole || self.damaged, "the volume merges a frame that does not match its checksum");
        let old = match base {
            Source::Frame(frame, _) => {
                self.assert_readable(frame, "a merge");
                self.frame(frame).to_vec()
            }
            Source::Zero => vec![0; BLOCK],
        };
        let (from, to) = (usize::from(from), usize::from(to));
        let bytes = self.frame_mut(target);
        bytes[..from].copy_from_slice(&old[..from]);
        bytes[to..].copy_from_slice(&old[to..]);
        let checksum = payload_checksum(&VOLUME_UUID, block, SectorMask::FULL, term, self.frame(target));
        let outcome = if whole { Outcome::Merged(checksum) } else { Outcome::Failed(IoError::Checksum) };
        self.coverage.see(if whole { "unaligned edge merged" } else { "damage detected by checksum" });
        if self.random.below(2) == 0 {
            self.hand(Event::Done { op, outcome });
            self.done_at_once = true;
        } else {
            self.pin_target(target, "a merge");
            // The bytes are merged already, only the answer is late: the base may be reused.
            self.begin(op, OpKind::Merge { target, outcome }, None, 1, 0);
        }
    }
}
