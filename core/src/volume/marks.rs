//! Watermark and window, which an owner tells every member before it goes on (D1 to D7): so whoever takes over knows all
//! that may be under way to the backing, and has it in its own log.
//!
//! - Nothing goes to the backing or the journal that lies above the window which everybody has, the own checkpoint
//!   included: a restart is a take-over from oneself (D3).
//! - The window is part of one group, or becomes one batch: it is opened into the next group only when the watermark has passed
//!   all of the one before (D2).
//! - A watermark is told when everything is committed that had been accepted when the backing's sync ended (D7): what it passes
//!   may have been superseded by that instead of written.
//! - A record ends when everybody has the watermark, and the own checkpoint says it (D5).
//!
//! A volume that one node has to itself has none of this: its window is everything.

use super::*;
use crate::cluster::{Mark, MarkNumber, Part};
use crate::format::Kind;

/// What was told, of a mark that somebody may not have yet.
#[derive(Clone, Copy, Debug)]
struct Told {
    number: MarkNumber,
    watermark: Lsn,
    through: Lsn,
}

/// See the module.
#[derive(Default)]
pub(super) struct Marks {
    told: VecDeque<Told>,
    /// Of the newest mark that everybody has.
    watermark: Lsn,
    through: Lsn,
    /// The backing has everything up to the first, and may be said to when the second is committed (D7).
    owed: Option<(Lsn, Lsn)>,
    /// A new size, and the mark that told it, until everybody has that (A7).
    size_told: Option<(MarkNumber, u64)>,
}

impl Volume {
    /// The marks of a new term begin with this one, which `Begin` tells.
    pub(super) fn begin_marks(&mut self, watermark: Lsn, pins: Vec<crate::cluster::Pin>) {
        let size_bytes = self.size_bytes;
        self.replication.standing.mark =
            Mark { number: MarkNumber(1), watermark, through: watermark, part: Part::default(), size_bytes, pins };
        self.refresh_pins();
        self.replication.marks = Marks::default();
        self.replication.marks.told.push_back(Told { number: MarkNumber(1), watermark, through: watermark });
        self.checkpoints.want();
    }

    fn publish_mark(&mut self, watermark: Lsn, through: Lsn) {
        let mark = &mut self.replication.standing.mark;
        mark.number = MarkNumber(mark.number.0 + 1);
        (mark.watermark, mark.through) = (watermark, through);
        self.replication.marks.told.push_back(Told { number: mark.number, watermark, through });
        self.replication.counters.marks += 1;
        self.checkpoints.want();
        self.write_checkpoint();
        self.marks_changed();
    }

    /// Every peer's checkpoint is to have room for this size (A7).
    pub(super) fn publish_size(&mut self, size_bytes: u64) {
        self.replication.standing.mark.size_bytes = size_bytes;
        self.replication.marks.size_told = Some((MarkNumber(self.replication.standing.mark.number.0 + 1), size_bytes));
        self.publish_mark(self.replication.standing.mark.watermark, self.replication.standing.mark.through);
    }

    /// Nothing is pinned any more (T6).
    pub(super) fn publish_no_pins(&mut self) {
        self.replication.standing.mark.pins.clear();
        self.publish_mark(self.replication.standing.mark.watermark, self.replication.standing.mark.through);
    }

    /// Somebody has a newer mark, or somebody is asked no more.
    pub(super) fn marks_changed(&mut self) {
        if self.role() != Role::Owner || self.replication.own_role.is_stepping_down() {
            return;
        }
        let all = match planted!(self, window_before_mark) {
            true => MarkNumber(u64::MAX),
            false => self.recorded_mark().min(self.replication.members.mark_of_all()),
        };
        let mut changed = false;
        while let Some(&Told { number, watermark, through }) = self.replication.marks.told.front()
            && number <= all
        {
            (self.replication.marks.watermark, self.replication.marks.through) = (watermark, through);
            self.replication.marks.told.pop_front();
            changed = true;
        }
        if let Some((_, size_bytes)) = self.replication.marks.size_told.take_if(|(number, _)| *number <= all) {
            self.report(Report::Grown(size_bytes));
        }
        if changed {
            self.retire_told();
        }
    }

    /// Ends what everybody knows to be durable in the backing (D5).
    pub(super) fn retire_told(&mut self) {
        self.retire_through(self.checkpoints.newest().destaged.min(self.replication.marks.watermark));
    }

    /// The backing's sync has ended.
    pub(super) fn owe_watermark(&mut self) {
        if self.role() == Role::Owner {
            self.replication.marks.owed.get_or_insert((self.positions.durable(), self.positions.accepted()));
            self.publish_watermark();
        }
    }

    pub(super) fn publish_watermark(&mut self) {
        while let Some((durable, after)) = self.replication.marks.owed
            && (self.positions.committed() >= after || planted!(self, watermark_over_uncommitted))
        {
            // More has become durable meanwhile: that waits for its own turn, which is now where nothing is uncommitted.
            self.replication.marks.owed =
                (self.positions.durable() > durable).then_some((self.positions.durable(), self.positions.accepted()));
            if durable > self.replication.standing.mark.watermark {
                self.publish_mark(durable, self.replication.standing.mark.through.max(durable));
            }
        }
    }

    /// D2 and D3: may this position be under way to the backing?
    pub(super) fn is_in_window(&self, lsn: Lsn) -> bool {
        self.role() != Role::Owner || lsn <= self.replication.marks.through || planted!(self, destage_outside_window)
    }

    /// Asks for a larger window when the one that was told is used up.
    pub(super) fn extend_window(&mut self) {
        if self.role() != Role::Owner || !self.destage.ready || !self.has_lease() || self.backing_failing() {
            return;
        }
        let Some(first) = self.index.cursor() else { return };
        let lsn = self.index.get(first).descriptor.lsn;
        let told = lsn <= self.replication.standing.mark.through;
        if told || !self.is_due(first) || self.has_all_pins() || self.pins_are_proven() {
            return;
        }
        let goes_on = self.index.get(first).descriptor.group == self.destage.group && !self.wants_journal();
        if !goes_on && self.replication.standing.mark.watermark < self.destage.collected {
            // The next group, or batch: when everybody knows that the one before is durable.
            return;
        }
        let through = self.window_from(first);
        self.publish_mark(self.replication.standing.mark.watermark, through);
    }

    /// How far a window may go that begins with this record.
    fn window_from(&self, first: u32) -> Lsn {
        if let Some(through) = self.first_window() {
            return through;
        }
        let rate = self.destage.bytes_per_sec() as f64 * WINDOW_TIME.as_secs_f64();
        let most = self.cluster().window_bytes_max.min((rate as u64).max(WINDOW_BYTES_MIN));
        let group = self.index.get(first).descriptor.group;
        let one_group = !self.wants_journal();
        let (mut through, mut bytes) = (Lsn(0), 0);
        let mut next = Some(first);
        while let Some(id) = next {
            let descriptor = self.index.get(id).descriptor;
            let other_group = one_group && descriptor.group != group;
            if descriptor.lsn > self.positions.committed() || other_group || (bytes >= most && id != first) {
                break;
            }
            bytes += if matches!(descriptor.kind, Kind::Data { .. }) { BLOCK_BYTES } else { 0 };
            through = descriptor.lsn;
            next = self.index.after(id);
        }
        through
    }
}

/// The window holds what the backing takes in this time,
const WINDOW_TIME: Duration = Duration::from_secs(5);
/// and never less than this, while its speed is not known.
const WINDOW_BYTES_MIN: u64 = 1 << 20;
