//! What the volume says of the times of requests, beside what the clients of this world have seen themselves.
//!
//! Checked while it serves: its client's legs are to the last bucket those of the answers, and its heat map is theirs, too; no
//! leg took longer than the longest request was open. At rest: each write was counted once in the tier.

use super::*;
use forebay_core::stats::{HeatMap, Histogram, Stats};

/// Answers of one life, by this node's clock.
#[derive(Default)]
pub(super) struct Answers {
    reads: Histogram,
    writes: Histogram,
    zeros: Histogram,
    flushes: Histogram,
    heat: HeatMap,
    /// The longest time that one was open, whatever its end.
    longest: Duration,
}

impl World {
    /// A request is answered, well or not.
    pub(super) fn note_answer(&mut self, open: &Open, well: bool) {
        let took = self.clock() - self.node.clock.shows(open.asked_at);
        let answers = &mut self.node.answers;
        answers.longest = answers.longest.max(took);
        if !well {
            return;
        }
        match open.asked {
            Asked::Read { length, .. } => {
                answers.reads.record(took);
                answers.heat.read(u64::from(length), took);
            }
            Asked::Write(write) if self.oracle.is_zero(write) => answers.zeros.record(took),
            Asked::Write(write) => {
                answers.writes.record(took);
                answers.heat.write(self.oracle.range(write).1, took);
            }
            Asked::Flush(_) => answers.flushes.record(took),
            Asked::Prefetch => {}
        }
    }

    /// The last effect has just been taken: what was answered is counted.
    pub(super) fn check_seen(&self) {
        let Some(volume) = &self.node.volume else { return };
        let (seen, answers) = (volume.seen(), &self.node.answers);
        assert!(seen.reads.client == answers.reads, "reads: the volume has counted others than were answered");
        assert!(seen.writes.client == answers.writes, "writes: the volume has counted others than were answered");
        assert!(seen.zeros == answers.zeros, "zeros: the volume has counted others than were answered");
        assert!(seen.flush == answers.flushes, "flushes: the volume has counted others than were answered");
        assert!(seen.heat == answers.heat, "the heat map is not that of the answers");
        if self.node.stopping {
            // Who was answered by a stop waits no more, and his leg may go on.
            return;
        }
        let now = self.clock();
        let open = self.node.open.values().map(|open| now - self.node.clock.shows(open.asked_at));
        let mut longest = Histogram::default();
        longest.record(open.fold(answers.longest, Duration::max));
        let Stats { reads, writes, .. } = seen;
        for (leg, name) in [
            (&reads.local, "a read in the tier"),
            (&reads.network, "a read from a former owner"),
            (&reads.backing, "a read in the backing"),
            (&writes.local, "a write in the tier"),
            (&writes.network, "a write among the members"),
            (&writes.backing, "a write in the backing"),
            (&reads.waiting, "a read waiting for memory or copies"),
            (&writes.waiting, "a write waiting for room"),
        ] {
            assert!(leg.max_us() <= longest.max_us(), "{name} took {:?} us, longer than any request", leg.max_us());
        }
    }

    /// Nothing is open and the tier is whole: all that was counted as written was held.
    pub(super) fn check_seen_at_rest(&self) {
        let volume = self.node.volume.as_ref().expect("it serves");
        let (seen, counters) = (volume.seen(), volume.status(self.clock()).counters);
        assert_eq!(seen.writes.local.count(), counters.writes, "each write is in the tier once");
        let ended = seen.destage.count() + counters.backing_errors;
        assert!(ended >= counters.backing_writes, "each write to the backing has ended, {ended} of them");
    }
}
