//! What a batch in the journal says of records that newer ones have ended, before the log has those.

use super::stand::*;
use forebay_core::api::*;
use forebay_core::format::*;
use forebay_core::status::DestageMode;
use forebay_core::types::*;

const A: u64 = 0;
const B: u64 = 1;

/// A volume on flash with a journal beside its backing. Writes and syncs of the tier can be kept from ending.
struct Bench {
    life: Life,
    journal: Vec<u8>,
    backing: Vec<u8>,
    stalled: bool,
    late: Vec<Effect>,
    syncs_stall: bool,
    late_syncs: Vec<OpId>,
}

impl Bench {
    /// A and B are written in one group and acknowledged; the tier has synced them. Then the tier stalls, A is written once
    /// more, and the backing is there.
    fn with_a_superseded() -> Bench {
        let mut bench = Bench::around(Life::first_with(TierKind::Flash, journaled));
        bench.life.write(A, 1);
        bench.life.write(B, 2);
        bench.stalled = true;
        bench.write(A, 3);
        bench.handle(Event::BackingReady);
        bench.run();
        bench
    }

    fn around(life: Life) -> Bench {
        Bench {
            life,
            journal: vec![0; JOURNAL_BLOCKS as usize * BLOCK],
            backing: vec![0; VOLUME_BLOCKS * BLOCK],
            stalled: false,
            late: Vec::new(),
            syncs_stall: false,
            late_syncs: Vec::new(),
        }
    }

    fn handle(&mut self, event: Event) {
        let now = Instant(self.life.now);
        self.life.volume.handle(now, event);
    }

    fn write(&mut self, block: u64, value: u8) {
        let request = self.life.write_request(block, 1, value);
        self.life.requests += 1;
        self.handle(Event::Request { id: RequestId(self.life.requests), request });
        self.run();
    }

    fn run(&mut self) {
        for _ in 0..20 {
            self.life.now += 100_000_000;
            self.life.volume.settle(Instant(self.life.now));
            while let Some(effect) = self.life.volume.poll_effect() {
                self.execute(effect);
            }
        }
    }

    fn execute(&mut self, effect: Effect) {
        let op = match effect {
            Effect::TierWrite { .. } if self.stalled => return self.late.push(effect),
            Effect::TierSync { op } if self.syncs_stall => return self.late_syncs.push(op),
            Effect::Reply { .. } => return,
            Effect::JournalWrite { op, at: place, head, frames, .. } => {
                let mut bytes = head;
                for frame in frames {
                    bytes.extend_from_slice(self.life.frame(frame));
                }
                self.journal[at(place)..][..bytes.len()].copy_from_slice(&bytes);
                op
            }
            Effect::BackingWrite { op, offset, parts } => {
                let mut to = offset as usize;
                for Part { frame, from, length, .. } in parts {
                    let bytes = self.life.frame(frame)[usize::from(from)..][..usize::from(length)].to_vec();
                    self.backing[to..][..bytes.len()].copy_from_slice(&bytes);
                    to += bytes.len();
                }
                op
            }
            Effect::JournalSync { op } | Effect::BackingSync { op } => op,
            other => {
                if let Some((op, outcome)) = self.life.execute(other) {
                    self.handle(Event::Done { op, outcome });
                }
                return;
            }
        };
        self.handle(Event::Done { op, outcome: Outcome::Ok });
    }

    /// The tier ends the oldest write that it was asked for.
    fn tier_takes_one(&mut self) {
        let (op, outcome) = self.life.execute(self.late.remove(0)).expect("a write ends");
        self.handle(Event::Done { op, outcome });
        self.run();
    }

    /// The batch that a replay would find.
    fn batch(&self) -> Option<JournalBatch> {
        let area_blocks = JOURNAL_BLOCKS / 2;
        let areas = [0, area_blocks].map(|area| {
            let head = &self.journal[at(area)..];
            let blocks = JournalBatch::head_blocks_hint(head)?;
            JournalBatch::decode(&ID, area, &head[..blocks as usize * BLOCK]).ok()
        });
        areas.into_iter().flatten().max_by_key(|batch| batch.sequence)
    }

    /// The process is killed now. What the next one serves when it has replayed the journal.
    fn killed(mut self) -> [Result<u8, RequestError>; 2] {
        let batch = self.batch();
        if let Some(batch) = &batch {
            let head = JournalBatch::head_blocks(batch.records.len());
            for (place, record) in (head..).zip(&batch.records) {
                self.backing[record.block.byte() as usize] = self.journal[at(place)];
            }
        }
        let mut next = Life::after_with(TierKind::Flash, self.life.kill(), journaled);
        if let Some(batch) = batch {
            next.volume.journal_replay_due();
            next.volume.journal_replay_begins();
            next.volume.journal_replayed(batch.through);
            next.run();
        }
        // To the next life its backing is zeros: a block that reads as zeros has the content of this one's.
        let image = |block: u64| self.backing[at(block as u32)];
        [A, B].map(|block| next.read(block).map(|value| if value == 0 { image(block) } else { value }))
    }
}

const JOURNAL_BLOCKS: u32 = 64;

fn journaled(config: &mut forebay_core::VolumeConfig) {
    config.journal_blocks = JOURNAL_BLOCKS;
    config.destage = DestageMode::Journaled;
}

/// Proves L-BF-1 and L-BF-2 where many groups go out as one batch.
#[test]
fn a_batch_says_nothing_of_a_record_that_one_outside_the_log_has_ended() {
    let bench = Bench::with_a_superseded();
    assert_eq!(bench.batch(), None, "it would say that the first write of A is in the backing");
    assert_eq!(bench.killed(), [Ok(1), Ok(2)]);
}

/// Proves L-BF-3 likewise: what the log shows after a loss of power, a replay does not take back.
#[test]
fn a_batch_waits_until_what_has_ended_its_records_is_synced() {
    let mut bench = Bench::with_a_superseded();
    bench.syncs_stall = true;
    bench.tier_takes_one();
    assert_eq!(bench.batch(), None, "the newer write of A is in the tier's cache");
    assert_eq!(bench.late_syncs.len(), 1, "the batch has it synced");
    assert_eq!(bench.killed(), [Ok(3), Ok(2)]);
}

#[test]
fn a_block_that_is_written_all_the_time_delays_a_batch_once() {
    let mut bench = Bench::with_a_superseded();
    bench.write(A, 4);
    bench.write(A, 5);
    assert_eq!(bench.batch(), None);
    bench.tier_takes_one();
    let batch = bench.batch().expect("the log has what had ended a record when the batch was chosen");
    assert_eq!((batch.through, batch.records.len()), (Lsn(2), 1));
    assert!(!bench.late.is_empty(), "newer writes of A are late still");
    assert_eq!(bench.killed(), [Ok(3), Ok(2)]);
}

#[test]
fn a_tier_that_fails_meanwhile_lets_the_group_out_by_itself() {
    let mut bench = Bench::with_a_superseded();
    bench.life.tier_answer = Outcome::Failed(IoError::Failed);
    bench.tier_takes_one();
    assert_eq!(bench.batch(), None);
    assert_eq!(bench.backing[at(B as u32)], 2, "its group is finished");
    assert_eq!(bench.backing[at(A as u32)], 0, "what was not acknowledged is not destaged");
}
