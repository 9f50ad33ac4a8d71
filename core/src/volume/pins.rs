//! Quarantine: after a take-over, writes of a former owner may still reach the backing, at any time, in the window that it had
//! last told (T5). The blocks of that window are *pinned* until there is proof that it can write no more (T6).
//!
//! - Which blocks are pinned the log itself says: a pin names positions, and the records at those positions stay, with those of the
//!   rest of the group: whoever writes them once more, a successor must know which blocks that were, also one whose process was
//!   started anew, or that has learnt the log since. So does the newest content, up to the watermark, of each sector of a pinned block: reads find it in the log.
//! - Nothing supersedes a record of a pinned block: what is at or below the watermark must not give way to what is above.
//! - The first that a new owner destages is the former window, where there is a journal as one batch.
//! - With proof for every former owner, that newest content is written once more and synced; then all pins end. Nothing
//!   else is chosen meanwhile: it would be overtaken by older content of the same block.
//!
//! Left to others: who may still write, and what proves that it cannot (ownership).

use super::log_index::State;
use super::*;
use crate::cluster::{PINS_MAX, Pin};
use crate::format::Kind;
use crate::log::PinReach;
use crate::record::UNFENCED_MAX;
use alloc::collections::BTreeMap;

/// The last writing of what is pinned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Rewriting {
    #[default]
    No,
    /// There is proof. It begins when nothing is under way.
    Due,
    /// Its writes were chosen.
    UnderWay,
}

/// See the module.
#[derive(Default)]
pub(super) struct Pins {
    /// Windows of former terms: those of the newest mark, and those that the checkpoint still has.
    windows: Vec<PinReach>,
    /// The record cannot name this owner as unfenced: until it is told that all former ones are proven gone, and the list
    /// was shortened, it writes nothing to the backing (T8).
    unlisted: bool,
    /// A former owner's window up to here is the first that is destaged.
    first: Option<Lsn>,
    rewriting: Rewriting,
    /// Of zeroed ranges that are written again the pieces, by position.
    pieces: BTreeMap<Lsn, Vec<(BlockIndex, u64)>>,
}

impl Volume {
    /// Looks anew at what is pinned: a mark has come, or the checkpoint has one.
    pub(super) fn refresh_pins(&mut self) {
        let mut windows = self.replication.standing.mark.pins.clone();
        for pin in self.recorded().into_iter().flat_map(|recorded| &recorded.mark.pins) {
            if !windows.contains(pin) {
                windows.push(*pin);
            }
        }
        if windows.iter().eq(self.replication.pins.windows.iter().map(|window| &window.pin)) {
            return;
        }
        self.replication.pins.windows = windows.into_iter().map(PinReach::of).collect();
        self.index.unpin_all();
        if self.replication.pins.windows.is_empty() {
            return self.index.forget_history();
        }
        // The blocks of the rest of the group as well: a record of the window that one of those has superseded may be found again
        // by a recovery, and its block is then taken for pinned (W17).
        let mut next = self.index.oldest();
        while let Some(id) = next {
            next = self.index.after(id);
            self.pin_if_in_window(id);
        }
    }

    fn pin_blocks_of(&mut self, id: u32, above: Lsn) {
        let descriptor = self.index.get(id).descriptor;
        let blocks = match descriptor.kind {
            Kind::Data { .. } | Kind::ZeroSectors { .. } => 1,
            Kind::ZeroBlocks { blocks, .. } => u64::from(blocks),
        };
        self.index.pin(descriptor.block, blocks, above);
    }

    /// A record that came into the log may be of a pinned window, or of the rest of its group.
    pub(super) fn pin_if_in_window(&mut self, id: u32) {
        let descriptor = self.index.get(id).descriptor;
        let windows = self
            .replication
            .pins
            .windows
            .iter_mut()
            .filter_map(|window| window.pins(&descriptor).then_some(window.pin.above));
        if let Some(above) = windows.min() {
            self.pin_blocks_of(id, above);
        }
    }

    /// It says which blocks are pinned.
    fn reports_pinned(&self, lsn: Lsn) -> bool {
        self.replication.pins.windows.iter().any(|window| window.pin.above < lsn && lsn <= window.through)
    }

    /// The record stays though it is durable in the backing.
    pub(super) fn is_kept_by_pin(&self, id: u32, watermark: Lsn) -> bool {
        if self.replication.pins.windows.is_empty() || planted!(self, forget_pins) {
            return false;
        }
        self.reports_pinned(self.index.get(id).descriptor.lsn) || self.index.is_newest_pinned(id, watermark)
    }

    /// No other window is opened: should this owner be lost, its own would be one too many (T5), or nobody would ask for
    /// proof about it (T8).
    pub(super) fn has_all_pins(&self) -> bool {
        self.replication.standing.mark.pins.len() >= PINS_MAX || self.replication.pins.unlisted
    }

    /// This owner writes nothing to the backing before there is proof about the former ones.
    pub(super) fn awaits_fence(&self) -> bool {
        self.role() == Role::Owner && self.has_all_pins() && !self.pins_are_proven()
    }

    /// Pins of a new term: those of former ones, and the window of the last owner that was heard, above the watermark.
    pub(super) fn pins_of_new_term(&mut self, watermark: Lsn, unfenced: &[Term]) -> Vec<Pin> {
        self.replication.pins.unlisted = unfenced.len() >= UNFENCED_MAX;
        let Some(&term) = unfenced.last() else { return Vec::new() };
        let mark = &self.replication.standing.mark;
        let mut pins = mark.pins.clone();
        if mark.through > watermark && !planted!(self, forget_pins) {
            pins.push(Pin { term, above: watermark, through: mark.through, part: mark.part });
            self.replication.pins.first = Some(mark.through);
        }
        pins
    }

    /// The window of the former owner, while it is to be destaged before anything else.
    pub(super) fn first_window(&self) -> Option<Lsn> {
        let next = self.index.get(self.index.cursor()?).descriptor.lsn;
        self.replication.pins.first.filter(|through| next <= *through)
    }

    // --- the last writing ---

    /// No former owner can write any more.
    pub(super) fn on_proven(&mut self) {
        if planted!(self, never_end_pins) {
            return;
        }
        self.replication.pins.unlisted = false;
        if self.replication.standing.mark.pins.is_empty() || planted!(self, end_pins_at_once) {
            return self.end_pins();
        }
        if self.replication.pins.rewriting == Rewriting::No {
            self.replication.pins.rewriting = Rewriting::Due;
        }
    }

    pub(super) fn pins_are_proven(&self) -> bool {
        self.replication.pins.rewriting != Rewriting::No
    }

    /// Everything that was chosen has to be chosen again.
    pub(super) fn rewrite_pins_again(&mut self) {
        if self.replication.pins.rewriting == Rewriting::UnderWay {
            self.replication.pins.rewriting = Rewriting::Due;
            self.replication.pins.pieces.clear();
        }
    }

    /// Chooses the newest content of what is pinned. The caller has made sure that nothing is under way.
    pub(super) fn rewrite_pins(&mut self) -> bool {
        let watermark = self.replication.standing.mark.watermark;
        if self.replication.pins.rewriting != Rewriting::Due || watermark < self.positions.durable() {
            return false;
        }
        self.replication.pins.rewriting = Rewriting::UnderWay;
        let zeros = self.index.pinned_zeros(watermark);
        self.replication.pins.pieces =
            zeros.into_iter().map(|(id, pieces)| (self.index.get(id).descriptor.lsn, pieces)).collect();
        let mut next = self.index.oldest();
        let mut chosen = Vec::new();
        while let Some(id) = next {
            let lsn = self.index.get(id).descriptor.lsn;
            if lsn > watermark {
                break;
            }
            let nothing = self.replication.pins.pieces.get(&lsn).is_some_and(|pieces| pieces.is_empty());
            if self.index.is_newest_pinned(id, watermark) && !nothing {
                chosen.push((id, lsn));
            }
            next = self.index.after(id);
        }
        for &(id, _) in &chosen {
            self.index.set_state(id, State::Queued);
        }
        if chosen.is_empty() {
            self.end_pins();
        } else {
            self.destage.queue_all(chosen);
        }
        true
    }

    /// Of a zeroed range that is written again: which pieces.
    pub(super) fn pinned_pieces(&self, lsn: Lsn) -> Option<&[(BlockIndex, u64)]> {
        self.replication.pins.pieces.get(&lsn).map(Vec::as_slice)
    }

    /// What the backing has is read from the log in pinned blocks only: of others newer content may have ended, here or where
    /// this log was learnt from.
    pub(super) fn confine_kept(&mut self, watermark: Lsn) {
        let mut next = self.index.oldest();
        while let Some(id) = next
            && self.index.get(id).descriptor.lsn <= watermark
        {
            self.index.confine_to_pinned(id);
            next = self.index.after(id);
        }
    }

    /// The backing's sync has ended after all of it was written.
    pub(super) fn end_rewritten_pins(&mut self) {
        if self.replication.pins.rewriting == Rewriting::UnderWay {
            self.end_pins();
        }
    }

    fn end_pins(&mut self) {
        self.replication.pins.rewriting = Rewriting::No;
        self.replication.pins.pieces.clear();
        if !self.replication.standing.mark.pins.is_empty() {
            self.publish_no_pins();
        }
        self.report(Report::PinsEnded);
    }
}
