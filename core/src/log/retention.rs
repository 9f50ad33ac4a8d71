//! Which records a member keeps although newer ones cover them, or the backing has them (docs/protocol.md), as its recovery
//! finds them:
//!
//! - S5: what is above the position that all members are known to hold is whole, so that whatever is fetched from here is.
//! - D4: what lies in the window, or in a pinned one, stays, because its range must stay known. So does, but for what newer
//!   records of it cover, the rest of the group that a pinned one ends in: its blocks are pinned with it (W17).
//! - T5: of a pinned block everything since its window began may be brought back by a former owner, so the newest content
//!   of each sector stays, also where the backing has it. What is older was there before that owner wrote.
//!
//! Pinned are whole blocks: a backing may write no less. The rest of a zeroed range that reaches beyond them is history.

use crate::cluster::{PINS_MAX, Pin};
use crate::format::{Descriptor, Kind, Standing};
use crate::ranges::ZeroMap;
use crate::types::*;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use smallvec::SmallVec;

/// Positions above the first up to the second.
type Window = (Lsn, Lsn);

/// See the module.
#[derive(Default)]
pub struct Retention {
    committed: Lsn,
    /// No pinned window begins before this; none: nothing is pinned.
    pinned_above: Option<Lsn>,
    windows: SmallVec<[Window; PINS_MAX + 1]>,
    /// What follows pinned windows in their groups.
    rests: SmallVec<[Window; PINS_MAX]>,
    /// For each pinned block the position after which its window began, and one more: 0 means that it is not pinned.
    since: ZeroMap,
}

/// Blocks that a record is about.
fn range(descriptor: &Descriptor) -> (BlockIndex, u64) {
    match descriptor.kind {
        Kind::Data { .. } | Kind::ZeroSectors { .. } => (descriptor.block, 1),
        Kind::ZeroBlocks { blocks, .. } => (descriptor.block, u64::from(blocks)),
    }
}

/// How far the group goes that a pinned window begins or ends in (W17): asked record by record, in log order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PinReach {
    pub(crate) pin: Pin,
    first: Option<Group>,
    last: Option<Group>,
    /// A record of another group came behind it.
    ended: bool,
    /// The last record that is pinned with the window.
    pub(crate) through: Lsn,
}

impl PinReach {
    pub(crate) fn of(pin: Pin) -> PinReach {
        PinReach { pin, first: None, last: None, ended: false, through: pin.through }
    }

    /// The blocks of this record are pinned.
    pub(crate) fn pins(&mut self, record: &Descriptor) -> bool {
        if record.lsn <= self.pin.above {
            return false;
        }
        let group = Some(record.group);
        self.first = self.first.or(group);
        if record.lsn <= self.pin.through {
            self.last = group;
        } else if self.ended || (group != self.first && group != self.last) {
            self.ended = true;
            return false;
        } else {
            self.through = self.through.max(record.lsn);
        }
        true
    }
}

impl Retention {
    /// What a member keeps by its own word, of these records in log order. The standing is a possible one.
    pub fn of<'a>(standing: &Standing, records: impl Iterator<Item = &'a Descriptor> + Clone) -> Retention {
        let mark = &standing.mark;
        let pinned_above = mark.pins.iter().map(|pin| pin.above).min();
        let mut kept = Retention { committed: standing.committed, pinned_above, ..Retention::default() };
        kept.windows.push((mark.watermark, mark.through));
        // The oldest window last: where two have a block, it counts from the older one on.
        let mut pins: SmallVec<[_; PINS_MAX]> = mark.pins.iter().collect();
        pins.sort_unstable_by_key(|pin| core::cmp::Reverse(pin.above));
        for pin in pins {
            kept.windows.push((pin.above, pin.through));
            let since = pin.above.next();
            if pin.part.blocks > 0 {
                kept.since.zero(pin.part.block, u64::from(pin.part.blocks), since);
                continue;
            }
            let mut reach = PinReach::of(*pin);
            for record in records.clone().filter(|record| reach.pins(record)) {
                let (first, blocks) = range(record);
                kept.since.zero(first, blocks, since);
            }
            kept.rests.push((pin.through, reach.through));
        }
        kept
    }

    /// Everything up to here is history, whatever it is about, of a log whose backing has everything up to `destaged`.
    pub fn history_through(&self, destaged: Lsn) -> Lsn {
        self.pinned_above.map_or(destaged, |above| above.min(destaged))
    }

    /// All members are known to hold everything up to here.
    pub(crate) fn committed(&self) -> Lsn {
        self.committed
    }

    pub(crate) fn is_in_window(&self, lsn: Lsn) -> bool {
        self.windows.iter().any(|&(above, through)| above < lsn && lsn <= through)
    }

    /// Which of these, all of them durable in the backing and in log order, are needed all the same.
    pub fn needed(&self, records: &[Descriptor]) -> Vec<bool> {
        let mut covered: BTreeMap<BlockIndex, SectorMask> = BTreeMap::new();
        let mut zeroed = ZeroMap::default();
        let mut rest: BTreeMap<BlockIndex, SectorMask> = BTreeMap::new();
        let in_rest = |lsn: Lsn| self.rests.iter().any(|&(above, through)| above < lsn && lsn <= through);
        let mut needed: Vec<bool> = records
            .iter()
            .rev()
            .map(|record| {
                let (first, blocks) = range(record);
                let newest = match record.kind {
                    Kind::Data { mask, .. } | Kind::ZeroSectors { mask } if self.is_pinned(first, record.lsn) => {
                        let newer = covered.entry(first).or_default();
                        let some = zeroed.zeroed(first) == Lsn(0) && !mask.without(*newer).is_empty();
                        *newer = newer.or(mask);
                        some
                    }
                    Kind::Data { .. } | Kind::ZeroSectors { .. } => false,
                    Kind::ZeroBlocks { .. } => {
                        zeroed.zero(first, blocks, record.lsn);
                        self.unpinned(record) != [(first, blocks)]
                    }
                };
                let tells = in_rest(record.lsn)
                    && match record.kind {
                        Kind::Data { mask, .. } | Kind::ZeroSectors { mask } => {
                            let newer = rest.entry(first).or_default();
                            let some = !mask.without(*newer).is_empty();
                            *newer = newer.or(mask);
                            some
                        }
                        Kind::ZeroBlocks { .. } => true,
                    };
                newest || tells || self.is_in_window(record.lsn)
            })
            .collect();
        needed.reverse();
        needed
    }

    fn is_pinned(&self, block: BlockIndex, lsn: Lsn) -> bool {
        let since = self.since.zeroed(block);
        since > Lsn(0) && lsn >= since
    }

    /// The ranges of a record that is durable in the backing which are not pinned: of them it says nothing any more.
    pub(crate) fn unpinned(&self, record: &Descriptor) -> Vec<(BlockIndex, u64)> {
        self.parts(record, false)
    }

    /// The ranges of such a record which are pinned.
    pub fn pinned(&self, record: &Descriptor) -> Vec<(BlockIndex, u64)> {
        self.parts(record, true)
    }

    fn parts(&self, record: &Descriptor, pinned: bool) -> Vec<(BlockIndex, u64)> {
        let (first, blocks) = range(record);
        let end = first.0 + blocks;
        let mut found: Vec<(BlockIndex, u64)> = Vec::new();
        let mut at = first;
        while at.0 < end {
            let next = self.since.next_change(at).0.clamp(at.0 + 1, end);
            if self.is_pinned(at, record.lsn) == pinned {
                match found.last_mut() {
                    Some((start, count)) if start.0 + *count == at.0 => *count += next - at.0,
                    _ => found.push((at, next - at.0)),
                }
            }
            at = BlockIndex(next);
        }
        found
    }
}
