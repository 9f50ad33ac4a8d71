//! What a volume may answer, and what its backing may hold: the promises of the design, as a checker.
//!
//! The oracle knows only what clients know: when each write and barrier was asked for and when it was answered. From
//! that it derives a partial order and checks against it
//! - every read: a value that is not older than the newest write completed before the read began, and never
//!   an older one than a read before it returned;
//! - a restart after the death of the process, or another owner: every write that was acknowledged or that a read has shown
//!   to anybody; of the others old or new, and then for good;
//! - a restart after a loss of power: every write under an acknowledged barrier; of the later ones any;
//! - the backing alone at any instant: all writes before some client barrier, and of the writes between that
//!   barrier and the next any subset.
//!
//! The unit is the *segment*: a 512-byte sector, or a part of one where an unaligned write has put an edge. Each
//! segment is a register with its own history of writes. What is uncertain (a write that runs at the same time
//! as a barrier, bytes that several writes explain) is decided for the volume: the oracle may
//! miss a fault there, but never reports a right volume.
//!
//! A violation is a panic that says what was found, where, and what would have been right.

use crate::pattern;

/// Moment in a run; every event has its own.
pub type Moment = u64;
/// Names a write, in the order of asking; 0 is the zeros that a new volume holds.
pub type WriteId = u32;
/// A moment that has not come.
const NEVER: Moment = Moment::MAX;
const SECTOR_BYTES: u64 = 512;
/// Writes shown in a report.
const LINES: usize = 12;

#[derive(Clone, Debug)]
struct Write {
    offset: u64,
    length: u64,
    zero: bool,
    /// It is a barrier itself.
    fua: bool,
    issued: Moment,
    /// Acknowledged, or the process died: later writes come after it.
    ended: Moment,
    acknowledged: bool,
    /// Barriers that were certainly before it.
    group_min: u32,
    /// Barriers that may have been before it.
    group_max: u32,
}

/// What is known of a write in one segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Presence {
    /// It may have been executed.
    Possible,
    /// It was: acknowledged, or shown by a read. The death of a process must not undo it.
    Certain,
    /// It was lost, legally, in a crash.
    Lost,
}

#[derive(Clone, Debug)]
struct Entry {
    write: WriteId,
    presence: Presence,
    /// A loss of power must not undo it.
    durable: bool,
    /// Reads that begin after this must not return it.
    dead_at: Moment,
    /// A read after a crash has settled for another one.
    passed_over: bool,
}

#[derive(Clone, Debug)]
struct Segment {
    from: u16,
    to: u16,
    /// In the order of asking.
    history: Vec<Entry>,
}

/// Names a flush that was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlushId(usize);

/// What clients were told, and what each sector may therefore hold.
pub struct Oracle {
    writes: Vec<Write>,
    sectors: Vec<Vec<Segment>>,
    flushes: Vec<Moment>,
    barriers_asked: u32,
    barriers_answered: u32,
    /// Acknowledged writes under no acknowledged barrier.
    unflushed: Vec<WriteId>,
}

impl Write {
    fn precedes(&self, later: &Write) -> bool {
        self.ended < later.issued
    }

    fn is(&self, id: WriteId, offset: u64, bytes: &[u8]) -> bool {
        if self.zero { pattern::is_zero(bytes) } else { pattern::matches(id, offset, bytes) }
    }
}

impl Segment {
    fn split(&mut self, at: u16) -> Segment {
        let tail = Segment { from: at, to: self.to, history: self.history.clone() };
        self.to = at;
        tail
    }
}

impl Oracle {
    /// Of a new volume of so many bytes; all zeros, and so is its backing.
    pub fn new(bytes: u64) -> Oracle {
        let first = Write {
            offset: 0,
            length: u64::MAX,
            zero: true,
            fua: false,
            issued: 0,
            ended: 0,
            acknowledged: true,
            group_min: 0,
            group_max: 0,
        };
        let mut oracle = Oracle {
            writes: vec![first],
            sectors: Vec::new(),
            flushes: Vec::new(),
            barriers_asked: 0,
            barriers_answered: 0,
            unflushed: Vec::new(),
        };
        oracle.grow(bytes);
        oracle
    }

    /// The volume has so many bytes now.
    pub fn grow(&mut self, bytes: u64) {
        let zeros = Entry { write: 0, presence: Presence::Certain, durable: true, dead_at: NEVER, passed_over: false };
        while (self.sectors.len() as u64) < bytes / SECTOR_BYTES {
            self.sectors.push(vec![Segment { from: 0, to: SECTOR_BYTES as u16, history: vec![zeros.clone()] }]);
        }
    }

    /// Bytes of the volume by now.
    pub fn bytes(&self) -> u64 {
        self.sectors.len() as u64 * SECTOR_BYTES
    }

    fn cut(&mut self, at: u64) {
        let within = (at % SECTOR_BYTES) as u16;
        if within == 0 {
            return;
        }
        let segments = &mut self.sectors[(at / SECTOR_BYTES) as usize];
        let i = segments.iter().position(|s| s.from <= within && within < s.to).expect("segments cover a sector");
        if segments[i].from < within {
            let tail = segments[i].split(within);
            segments.insert(i + 1, tail);
        }
    }

    /// Calls `f` with each segment that lies wholly in the range, and its first byte.
    fn whole_segments(&mut self, offset: u64, length: u64, mut f: impl FnMut(&[Write], u64, &mut Segment)) {
        let end = (offset + length).min(self.bytes());
        if offset >= end {
            return;
        }
        for sector in offset / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES) {
            for segment in &mut self.sectors[sector as usize] {
                let from = sector * SECTOR_BYTES + u64::from(segment.from);
                let to = sector * SECTOR_BYTES + u64::from(segment.to);
                if offset <= from && to <= end {
                    f(&self.writes, from, segment);
                }
            }
        }
    }

    /// Calls `f` with each segment that the range touches, and the touched bytes.
    fn touched_segments(&mut self, offset: u64, bytes: &[u8], mut f: impl FnMut(&[Write], u64, &[u8], &mut Segment)) {
        let end = offset + bytes.len() as u64;
        for sector in offset / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES) {
            for segment in &mut self.sectors[sector as usize] {
                let from = (sector * SECTOR_BYTES + u64::from(segment.from)).max(offset);
                let to = (sector * SECTOR_BYTES + u64::from(segment.to)).min(end);
                if from < to {
                    f(&self.writes, from, &bytes[(from - offset) as usize..(to - offset) as usize], segment);
                }
            }
        }
    }

    /// The number that the next write will have; its bytes are made before it is asked for.
    pub fn next_write(&self) -> WriteId {
        self.writes.len() as WriteId
    }

    /// A client asks for a write of this many bytes, or for zeros. `id` must have been taken from
    /// [`Oracle::reserve`].
    pub fn write_asked(&mut self, id: WriteId, offset: u64, length: u64, zero: bool, fua: bool, now: Moment) {
        self.cut(offset);
        if offset + length < self.bytes() {
            self.cut(offset + length);
        }
        let write = &mut self.writes[id as usize];
        assert_eq!(write.issued, NEVER, "write {id} is asked for twice");
        *write = Write {
            offset,
            length,
            zero,
            fua,
            issued: now,
            ended: NEVER,
            acknowledged: false,
            group_min: self.barriers_answered,
            group_max: u32::MAX,
        };
        self.barriers_asked += u32::from(fua);
        let entry =
            Entry { write: id, presence: Presence::Possible, durable: false, dead_at: NEVER, passed_over: false };
        self.whole_segments(offset, length, |_, _, segment| segment.history.push(entry.clone()));
    }

    /// Gives a number to a write whose bytes are being made.
    pub fn reserve(&mut self) -> WriteId {
        let id = self.next_write();
        self.writes.push(Write {
            offset: 0,
            length: 0,
            zero: false,
            fua: false,
            issued: NEVER,
            ended: NEVER,
            acknowledged: false,
            group_min: 0,
            group_max: 0,
        });
        id
    }

    /// The write was answered well.
    pub fn write_acknowledged(&mut self, id: WriteId, now: Moment) {
        let asked = self.barriers_asked;
        let write = &mut self.writes[id as usize];
        write.ended = now;
        write.acknowledged = true;
        // Its own barrier comes after it.
        write.group_max = asked - u32::from(write.fua);
        let write = write.clone();
        self.whole_segments(write.offset, write.length, |writes, _, segment| {
            for entry in &mut segment.history {
                if entry.write == id {
                    entry.presence = Presence::Certain;
                    entry.durable |= write.fua;
                } else if writes[entry.write as usize].precedes(&write) {
                    entry.dead_at = entry.dead_at.min(now);
                }
            }
        });
        if write.fua {
            self.barriers_answered += 1;
        } else {
            self.unflushed.push(id);
        }
    }

    /// A client asks for a barrier.
    pub fn flush_asked(&mut self, now: Moment) -> FlushId {
        self.barriers_asked += 1;
        self.flushes.push(now);
        FlushId(self.flushes.len() - 1)
    }

    /// The barrier was answered well: what was acknowledged before it was asked for is durable.
    pub fn flush_acknowledged(&mut self, flush: FlushId) {
        self.barriers_answered += 1;
        self.make_durable(self.flushes[flush.0]);
    }

    /// Everything acknowledged before `moment` must survive a loss of power from now on.
    pub fn make_durable(&mut self, moment: Moment) {
        let (covered, rest): (Vec<_>, Vec<_>) =
            self.unflushed.iter().partition(|&&w| self.writes[w as usize].ended < moment);
        self.unflushed = rest;
        for id in covered {
            let write = self.writes[id as usize].clone();
            self.whole_segments(write.offset, write.length, |_, _, segment| {
                for entry in &mut segment.history {
                    if entry.write == id && entry.presence == Presence::Certain {
                        entry.durable = true;
                    }
                }
            });
        }
    }

    /// A read that began at `began` was answered with these bytes.
    pub fn read_answered(&mut self, offset: u64, bytes: &[u8], began: Moment, now: Moment) {
        self.touched_segments(offset, bytes, |writes, at, bytes, segment| {
            let candidates =
                matching(writes, segment, at, bytes, |e| e.presence != Presence::Lost && e.dead_at > began);
            let Some(&newest) = candidates.last() else {
                illegal("a read", writes, segment, at, bytes, began);
            };
            // Bytes that several writes explain, or too few of them, prove nothing about which was there.
            if candidates.len() == 1 && bytes.len() >= 8 {
                observe(writes, segment, newest, began, now);
            }
        });
    }

    /// As [`Oracle::read_answered`], for the first read of a range after a crash: what is there now is decided
    /// for good. `durable`: it survived a loss of power, so it will survive the next.
    pub fn settled(&mut self, offset: u64, bytes: &[u8], durable: bool, began: Moment, now: Moment) {
        self.touched_segments(offset, bytes, |writes, at, bytes, segment| {
            let found = matching(writes, segment, at, bytes, |e| e.presence != Presence::Lost && e.dead_at > began);
            if found.is_empty() {
                illegal("the first read after a crash", writes, segment, at, bytes, began);
            }
            for (i, entry) in segment.history.iter_mut().enumerate() {
                if found.contains(&i) {
                    if found.len() == 1 {
                        entry.presence = Presence::Certain;
                        entry.durable |= durable;
                    }
                } else {
                    // An older value keeps its presence: the backing may still hold it. So does what only the process's
                    // death made invisible: it may lie in the log, under what a loss of power takes away.
                    if durable && entry.dead_at > now {
                        entry.presence = Presence::Lost;
                    }
                    entry.passed_over = true;
                    entry.dead_at = entry.dead_at.min(now);
                }
            }
        });
    }

    fn end_open_writes(&mut self, now: Moment) {
        for write in &mut self.writes {
            if write.issued != NEVER && write.ended == NEVER {
                write.ended = now;
                write.group_max = self.barriers_asked;
            }
        }
    }

    /// The process is gone: what was not acknowledged is there or not.
    pub fn process_killed(&mut self, now: Moment) {
        self.end_open_writes(now);
        for segment in self.sectors.iter_mut().flatten() {
            for i in 0..segment.history.len() {
                let write = &self.writes[segment.history[i].write as usize];
                let superseded = segment
                    .history
                    .iter()
                    .any(|e| e.presence == Presence::Certain && write.precedes(&self.writes[e.write as usize]));
                let entry = &mut segment.history[i];
                if entry.presence != Presence::Lost && !entry.passed_over && !superseded {
                    entry.dead_at = NEVER;
                }
            }
        }
    }

    /// Writes that were not acknowledged may be gone, whatever reads have shown: only logs had them.
    pub fn forget_unacknowledged(&mut self) {
        for entry in self.sectors.iter_mut().flatten().flat_map(|segment| &mut segment.history) {
            entry.passed_over = false;
            if !self.writes[entry.write as usize].acknowledged && entry.presence == Presence::Certain {
                (entry.presence, entry.durable) = (Presence::Possible, false);
            }
        }
    }

    /// What flushes have promised holds no longer, nor what was found to be lost before: that was on media, too, which
    /// somebody else's log has not.
    pub fn forget_flushes(&mut self) {
        for entry in self.sectors.iter_mut().flatten().flat_map(|segment| &mut segment.history) {
            entry.durable &= entry.write == 0;
            if entry.presence == Presence::Lost {
                (entry.presence, entry.passed_over, entry.dead_at) = (Presence::Possible, false, NEVER);
            }
        }
    }

    /// The power is gone, and the log is on stable media: what was not under a barrier is there or not.
    pub fn power_lost(&mut self, now: Moment) {
        self.end_open_writes(now);
        self.unflushed.clear();
        for segment in self.sectors.iter_mut().flatten() {
            for i in 0..segment.history.len() {
                let write = &self.writes[segment.history[i].write as usize];
                let superseded = segment.history.iter().any(|e| {
                    e.durable && e.presence == Presence::Certain && write.precedes(&self.writes[e.write as usize])
                });
                let entry = &mut segment.history[i];
                if entry.presence == Presence::Lost {
                    continue;
                }
                if !superseded {
                    entry.dead_at = NEVER;
                    entry.passed_over = false;
                }
                if entry.presence == Presence::Certain && !entry.durable {
                    entry.presence = Presence::Possible;
                }
            }
        }
    }

    /// Every log is gone: the backing must be a legal crash image, and is the volume from now on.
    pub fn all_logs_lost(&mut self, image: &[u8], now: Moment) {
        self.end_open_writes(now);
        self.unflushed.clear();
        self.backing_is_crash_image(image, "all logs were lost");
        let bytes = self.bytes();
        self.touched_segments(0, &image[..bytes as usize], |writes, at, bytes, segment| {
            let found = matching(writes, segment, at, bytes, |_| true);
            let mut kept: Vec<Entry> = found.iter().map(|&i| segment.history[i].clone()).collect();
            let only = kept.len() == 1;
            for entry in &mut kept {
                entry.presence = if only { Presence::Certain } else { Presence::Possible };
                entry.durable = only;
                entry.dead_at = NEVER;
                entry.passed_over = false;
            }
            segment.history = kept;
        });
    }

    /// Checks the promise for the loss of all logs; `when` is for the report.
    pub fn backing_is_crash_image(&self, image: &[u8], when: &str) {
        // Barriers that may be the last whole one, counted: everything before barrier `h` is there, and a part of
        // what lies between it and the next. Each segment allows an interval, or several where it is ambiguous.
        let (mut low, mut high) = (0u32, self.barriers_asked);
        // Where the bytes lie that say so.
        let (mut low_by, mut high_by) = (None, None);
        let mut ambiguous: Vec<Vec<(u32, u32)>> = Vec::new();
        let mut intervals: Vec<(u32, u32)> = Vec::new();
        for (sector, segments) in self.sectors.iter().enumerate() {
            for segment in segments {
                let at = sector as u64 * SECTOR_BYTES + u64::from(segment.from);
                let bytes = &image[at as usize..at as usize + usize::from(segment.to - segment.from)];
                intervals.clear();
                for (i, entry) in segment.history.iter().enumerate().rev() {
                    let write = &self.writes[entry.write as usize];
                    if !write.is(entry.write, at, bytes) {
                        continue;
                    }
                    let most = segment.history[i + 1..]
                        .iter()
                        .filter(|e| e.presence == Presence::Certain && write.precedes(&self.writes[e.write as usize]))
                        .map(|e| self.writes[e.write as usize].group_max)
                        .min()
                        .unwrap_or(u32::MAX);
                    if write.group_min <= most {
                        intervals.push((write.group_min, most));
                    }
                }
                match intervals.as_slice() {
                    [] => panic!(
                        "the backing is no crash image ({when}): byte {at}+{} holds {}, which no client wrote there\n{}",
                        bytes.len(),
                        pattern::explain(at, bytes),
                        history(&self.writes, segment, at, bytes),
                    ),
                    [(l, h)] => {
                        if *l > low {
                            (low, low_by) = (*l, Some((at, bytes, segment)));
                        }
                        if *h < high {
                            (high, high_by) = (*h, Some((at, bytes, segment)));
                        }
                    }
                    _ => ambiguous.push(intervals.clone()),
                }
            }
        }
        let legal = (low..=high)
            .any(|h| ambiguous.iter().all(|intervals| intervals.iter().any(|&(l, most)| l <= h && h <= most)));
        if !legal {
            let reason = |by: Option<(u64, &[u8], &Segment)>, none: &str| {
                by.map_or(none.to_owned(), |(at, bytes, segment)| self.reason(at, bytes, segment))
            };
            panic!(
                "the backing is no crash image ({when}): no client barrier divides it.\n\
                 Writes after barrier {low} are there: {}\nwrites before barrier {} are not: {}",
                reason(low_by, "the first"),
                high.saturating_add(1),
                reason(high_by, "the last"),
            );
        }
    }

    fn reason(&self, at: u64, bytes: &[u8], segment: &Segment) -> String {
        format!(
            "byte {at}+{} holds {}\n{}",
            bytes.len(),
            pattern::explain(at, bytes),
            history(&self.writes, segment, at, bytes)
        )
    }

    /// Checks that an image holds, in a range, every write that was acknowledged at `moment` or before, or newer ones.
    pub fn image_has_all_before(&mut self, image: &[u8], offset: u64, length: u64, moment: Moment, why: &str) {
        let range = offset as usize..(offset + length) as usize;
        self.touched_segments(offset, &image[range], |writes, at, bytes, segment| {
            let older = |e: &Entry| {
                let write = &writes[e.write as usize];
                segment.history.iter().any(|later| {
                    let by = &writes[later.write as usize];
                    later.presence == Presence::Certain && by.ended <= moment && write.precedes(by)
                })
            };
            if matching(writes, segment, at, bytes, |e| !older(e)).is_empty() {
                illegal(why, writes, segment, at, bytes, moment);
            }
        });
    }

    /// Checks that an image holds a write, or newer ones, wherever that lies.
    pub fn image_has(&mut self, image: &[u8], id: WriteId, why: &str) {
        let (offset, length) = self.range(id);
        let range = offset as usize..(offset + length) as usize;
        self.touched_segments(offset, &image[range], |writes, at, bytes, segment| {
            let wanted = &writes[id as usize];
            if matching(writes, segment, at, bytes, |e| !writes[e.write as usize].precedes(wanted)).is_empty() {
                illegal(why, writes, segment, at, bytes, wanted.issued);
            }
        });
    }

    /// After damage that no copy can repair: a read may show less than was promised, but only bytes that were
    /// written at this place, each sector whole.
    pub fn read_is_of_this_place(&mut self, offset: u64, bytes: &[u8]) {
        self.touched_segments(offset, bytes, |writes, at, bytes, segment| {
            if matching(writes, segment, at, bytes, |_| true).is_empty() {
                illegal("a read after damage", writes, segment, at, bytes, 0);
            }
        });
    }

    /// True when the write is a barrier by itself.
    pub fn is_fua(&self, id: WriteId) -> bool {
        self.writes[id as usize].fua
    }

    /// It makes a range zero.
    pub fn is_zero(&self, id: WriteId) -> bool {
        self.writes[id as usize].zero
    }

    /// The range of a write.
    pub fn range(&self, id: WriteId) -> (u64, u64) {
        let write = &self.writes[id as usize];
        (write.offset, write.length)
    }
}

/// Places in the history whose write explains the bytes.
fn matching(writes: &[Write], segment: &Segment, at: u64, bytes: &[u8], legal: impl Fn(&Entry) -> bool) -> Vec<usize> {
    let is = |e: &Entry| legal(e) && writes[e.write as usize].is(e.write, at, bytes);
    segment.history.iter().enumerate().filter(|(_, e)| is(e)).map(|(i, _)| i).collect()
}

/// A read that began at `began` returned this entry: what was complete before it is older.
fn observe(writes: &[Write], segment: &mut Segment, seen: usize, began: Moment, now: Moment) {
    let seen_write = segment.history[seen].write;
    for entry in &mut segment.history {
        let write = &writes[entry.write as usize];
        if entry.write == seen_write {
            entry.presence = Presence::Certain;
        } else if write.ended < began || write.precedes(&writes[seen_write as usize]) {
            entry.dead_at = entry.dead_at.min(now);
        }
    }
}

fn illegal(what: &str, writes: &[Write], segment: &Segment, at: u64, bytes: &[u8], began: Moment) -> ! {
    panic!(
        "{what} (from moment {began}) found at byte {at}+{} {}, which is not legal there\n{}",
        bytes.len(),
        pattern::explain(at, bytes),
        history(writes, segment, at, bytes)
    );
}

/// The story of a segment, from the write that was found there on.
fn history(writes: &[Write], segment: &Segment, at: u64, bytes: &[u8]) -> String {
    let found = matching(writes, segment, at, bytes, |_| true);
    let last = segment.history.len();
    let from = found.last().map_or(last.saturating_sub(LINES), |&i| i.saturating_sub(2)).min(last);
    let to = (from + LINES).min(last);
    let mut lines = if from > 0 { format!("  ({from} older writes)\n") } else { String::new() };
    let moment = |m: Moment| if m == NEVER { "-".to_string() } else { m.to_string() };
    for entry in &segment.history[from..to] {
        let w = &writes[entry.write as usize];
        lines += &format!(
            "  write {} {}[{}+{}] asked {} ended {} acked {} groups {}..{} {:?}{} dead from {}\n",
            entry.write,
            if w.zero { "of zeros " } else { "" },
            w.offset,
            w.length as i64,
            w.issued,
            moment(w.ended),
            w.acknowledged,
            w.group_min,
            if w.group_max == u32::MAX { "-".into() } else { w.group_max.to_string() },
            entry.presence,
            if entry.durable { " durable" } else { "" },
            moment(entry.dead_at),
        );
    }
    if to < last {
        lines += &format!("  ({} newer writes)\n", last - to);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// A volume of four sectors and an image of it, driven by hand.
    struct Bench {
        oracle: Oracle,
        now: Moment,
    }

    impl Bench {
        fn new() -> Bench {
            Bench { oracle: Oracle::new(2048), now: 0 }
        }
        fn tick(&mut self) -> Moment {
            self.now += 1;
            self.now
        }
        fn ask(&mut self, sector: u64) -> WriteId {
            let id = self.oracle.reserve();
            let now = self.tick();
            self.oracle.write_asked(id, sector * 512, 512, false, false, now);
            id
        }
        fn ack(&mut self, id: WriteId) {
            let now = self.tick();
            self.oracle.write_acknowledged(id, now);
        }
        fn write(&mut self, sector: u64) -> WriteId {
            let id = self.ask(sector);
            self.ack(id);
            id
        }
        fn flush(&mut self) {
            let now = self.tick();
            let id = self.oracle.flush_asked(now);
            self.oracle.flush_acknowledged(id);
        }
        fn read(&mut self, sector: u64, id: WriteId) {
            let began = self.tick();
            let now = self.tick();
            let bytes = sector_of(sector, id);
            self.oracle.read_answered(sector * 512, &bytes, began, now);
        }
        fn image(&self, writes: [WriteId; 4]) -> Vec<u8> {
            writes.iter().enumerate().flat_map(|(s, &w)| sector_of(s as u64, w)).collect()
        }
        fn crash_image(&self, writes: [WriteId; 4]) {
            self.oracle.backing_is_crash_image(&self.image(writes), "test");
        }
    }

    fn sector_of(sector: u64, id: WriteId) -> Vec<u8> {
        let mut bytes = vec![0; 512];
        if id > 0 {
            pattern::fill(id, sector * 512, &mut bytes);
        }
        bytes
    }

    fn refused(f: impl FnOnce()) {
        assert!(catch_unwind(AssertUnwindSafe(f)).is_err(), "the oracle let it pass");
    }

    #[test]
    fn a_read_returns_the_newest_acknowledged_write_or_a_concurrent_one() {
        let mut b = Bench::new();
        let first = b.write(0);
        let open = b.ask(0);
        b.read(0, first);
        b.read(0, open);
        refused(|| b.read(0, first));
        let mut b = Bench::new();
        let old = b.write(1);
        b.write(1);
        refused(|| b.read(1, old));
    }

    #[test]
    fn concurrent_writes_settle_in_one_order_for_all_reads() {
        let mut b = Bench::new();
        let (x, y) = (b.ask(0), b.ask(0));
        b.ack(x);
        b.ack(y);
        b.read(0, x);
        b.read(0, x);
        refused(|| b.read(0, y));
    }

    #[test]
    fn misplaced_bytes_are_refused() {
        let mut b = Bench::new();
        let x = b.write(0);
        b.write(1);
        let bytes = sector_of(0, x);
        refused(|| b.oracle.read_answered(512, &bytes, 10, 11));
    }

    #[test]
    fn a_crash_image_is_a_barrier_and_a_part_of_the_next_group() {
        let mut b = Bench::new();
        let (a, c) = (b.write(0), b.write(1));
        b.flush();
        let (d, e) = (b.write(2), b.write(0));
        b.crash_image([0, 0, 0, 0]);
        b.crash_image([0, c, 0, 0]);
        b.crash_image([a, c, 0, 0]);
        b.crash_image([a, c, d, 0]);
        b.crash_image([e, c, 0, 0]);
        b.crash_image([e, c, d, 0]);
        refused(|| b.crash_image([a, 0, d, 0]));
        refused(|| b.crash_image([e, 0, 0, 0]));
        refused(|| b.crash_image([a, c, 0, a]));
    }

    #[test]
    fn a_write_beside_a_barrier_may_be_in_either_group() {
        let mut b = Bench::new();
        let x = b.ask(0);
        b.flush();
        let y = b.write(1);
        b.ack(x);
        b.crash_image([0, y, 0, 0]);
        b.crash_image([x, 0, 0, 0]);
        b.flush();
        let z = b.write(2);
        refused(|| b.crash_image([0, y, z, 0]));
        b.crash_image([x, y, z, 0]);
    }

    #[test]
    fn after_a_power_loss_flushed_writes_are_there_and_later_ones_may_be() {
        let mut b = Bench::new();
        let kept = b.write(0);
        b.flush();
        let late = b.write(0);
        let now = b.tick();
        b.oracle.power_lost(now);
        b.read(0, kept);
        let mut b = Bench::new();
        b.write(0);
        b.flush();
        let now = b.tick();
        b.oracle.power_lost(now);
        refused(|| b.read(0, 0));
        let _ = late;
    }

    #[test]
    fn what_the_first_read_after_a_crash_shows_stays() {
        let mut b = Bench::new();
        let old = b.write(0);
        let open = b.ask(0);
        let now = b.tick();
        b.oracle.process_killed(now);
        let (began, now) = (b.tick(), b.tick());
        b.oracle.settled(0, &sector_of(0, old), false, began, now);
        b.read(0, old);
        refused(|| b.read(0, open));
    }

    #[test]
    fn an_acknowledged_write_is_there_after_the_process_died() {
        let mut b = Bench::new();
        b.write(0);
        let now = b.tick();
        b.oracle.process_killed(now);
        refused(|| b.read(0, 0));
    }

    #[test]
    fn what_a_read_has_shown_is_there_after_the_process_died() {
        let mut b = Bench::new();
        let old = b.write(0);
        let open = b.ask(0);
        b.read(0, open);
        let now = b.tick();
        b.oracle.process_killed(now);
        b.read(0, open);
        refused(|| b.read(0, old));
    }

    #[test]
    fn an_unaligned_write_is_checked_to_the_byte() {
        let mut b = Bench::new();
        let base = b.write(0);
        let id = b.oracle.reserve();
        let now = b.tick();
        b.oracle.write_asked(id, 3, 100, false, false, now);
        b.ack(id);
        let mut right = sector_of(0, base);
        pattern::fill(id, 3, &mut right[3..103]);
        let (began, now) = (b.tick(), b.tick());
        b.oracle.read_answered(0, &right, began, now);
        let mut wrong = sector_of(0, base);
        pattern::fill(id, 3, &mut wrong[3..102]);
        refused(|| b.oracle.read_answered(0, &wrong, began, now));
    }
}
