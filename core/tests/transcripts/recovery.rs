//! Commands of transcripts about what a start makes of a tier. One volume, without other nodes; its backing never gets ready, so
//! everything stays in the log. The device does at once what it is asked.

use crate::stand::{BLOCK, ID, Life, at, layout};
use crate::{Stand, words};
use forebay_core::api::*;
use forebay_core::format::*;
use forebay_core::status::Phase;
use forebay_core::types::*;

/// A tier, and the process on it if one runs.
pub struct Tier {
    kind: TierKind,
    bytes: Vec<u8>,
    life: Option<Life>,
    lines: Vec<String>,
}

fn number(word: &str) -> u64 {
    word.parse().unwrap_or_else(|_| panic!("{word} is no number"))
}

impl Tier {
    /// A new one.
    pub fn new(kind: &str) -> Tier {
        let kind = match kind {
            "memory" => TierKind::Memory,
            "flash" => TierKind::Flash,
            other => panic!("{other} is no kind of tier"),
        };
        Tier { kind, bytes: Vec::new(), life: None, lines: Vec::new() }
    }

    fn life(&mut self) -> &mut Life {
        self.life.as_mut().expect("a process runs")
    }

    /// Batches of the log that lie on flash, in the order of their numbers, with the block that each begins at.
    fn batches(&self) -> Vec<(u32, Batch)> {
        let bytes = self.life.as_ref().map_or(&self.bytes, |life| &life.tier);
        let layout = layout(self.kind);
        let blocks = layout.payload_first..layout.payload_first + layout.payload_blocks;
        let decoded =
            |block| Some((block, Batch::decode(&ID, TierBlock(block), &bytes[at(block)..at(block + 1)]).ok()?));
        let mut batches: Vec<(u32, Batch)> = blocks.filter_map(decoded).collect();
        batches.sort_by_key(|(_, batch)| batch.sequence);
        batches
    }

    fn batch(&self, sequence: u64) -> u32 {
        let batches = self.batches();
        batches.iter().find(|(_, batch)| batch.sequence == sequence).expect("there is such a batch").0
    }

    /// Index in a memory tier's table, and record, of each entry that is one.
    fn table(&self) -> Vec<(usize, Descriptor)> {
        let bytes = self.life.as_ref().map_or(&self.bytes, |life| &life.tier);
        let layout = layout(self.kind);
        let entry = |index: usize| {
            let from = at(layout.table_first) + index * DESCRIPTOR_BYTES;
            let entry = &bytes[from..from + DESCRIPTOR_BYTES];
            Some((index, Descriptor::decode(&ID, index as u64, entry).ok()??))
        };
        let mut entries: Vec<(usize, Descriptor)> = (0..layout.payload_blocks as usize).filter_map(entry).collect();
        entries.sort_by_key(|(_, record)| record.lsn);
        entries
    }

    /// Tells what the log on the tier has.
    fn show(&mut self) {
        let lines: Vec<String> = match self.kind {
            TierKind::Flash => self.batches().iter().map(|(_, batch)| told(batch)).collect(),
            TierKind::Memory => {
                self.table().iter().map(|(_, record)| format!("entry {}", words::record(record, Term(0)))).collect()
            }
        };
        self.lines.extend(lines);
    }

    /// Carries out what the volume asks for, and tells it.
    fn run(&mut self) {
        loop {
            let life = self.life.as_mut().expect("a process runs");
            life.now += 1_000_000;
            life.volume.settle(Instant(life.now));
            let mut idle = true;
            while let Some(effect) = life.volume.poll_effect() {
                idle = false;
                self.lines.extend(asked(&effect));
                if let Effect::Reply { id, result } = effect {
                    let ended = if result.is_ok() { "is answered" } else { "fails" };
                    self.lines.push(format!("request {} {ended}", id.0));
                } else if let Some((op, outcome)) = life.execute(effect) {
                    if let Outcome::Failed(why) = outcome {
                        self.lines.push(format!("that fails: {}", words::io_error(why)));
                    }
                    life.volume.handle(Instant(life.now), Event::Done { op, outcome });
                }
            }
            if idle {
                return;
            }
        }
    }

    fn request(&mut self, request: Request) {
        let life = self.life();
        life.requests += 1;
        let id = RequestId(life.requests);
        life.volume.handle(Instant(life.now), Event::Request { id, request });
        self.run();
    }

    /// A process starts on what the tier holds; on none of it the first time.
    fn start(&mut self) {
        let fresh = self.bytes.is_empty();
        let bytes = if fresh { vec![0; crate::stand::TIER_BLOCKS * BLOCK] } else { std::mem::take(&mut self.bytes) };
        self.life = Some(Life::opened(self.kind, bytes, fresh, |_| ()));
        self.run();
        let life = self.life();
        let phase = life.phase();
        let (start, term) = (life.volume.start(), life.volume.term());
        let status = life.volume.status(Instant(life.now));
        self.lines.push(match phase {
            Phase::Serving => {
                let (held, dirty) = (status.held, status.dirty_bytes / BLOCK_BYTES);
                format!("start {start} t{term} {}: held {held}, dirty blocks {dirty}", words::phase(phase))
            }
            _ => words::phase(phase),
        });
    }

    fn kill(&mut self) {
        self.bytes = self.life.take().expect("a process runs").kill();
    }

    /// The tier's bytes change while no process runs.
    fn damage(&mut self, words: &[&str]) {
        assert!(self.life.is_none(), "no process runs");
        match words {
            // Power was cut before it was synced.
            ["payload", "of", "batch", batch, "is", "lost"] => {
                let first = self.batch(number(batch)) + 1;
                self.bytes[at(first)..at(first + 1)].fill(0);
            }
            ["head", "of", "batch", batch, "is", "damaged"] => {
                let first = self.batch(number(batch));
                self.bytes[at(first) + 70] ^= 1;
            }
            ["entry", position, "is", "damaged"] => {
                let table = self.table();
                let wanted = Lsn(number(position));
                let (index, _) = table.iter().find(|(_, record)| record.lsn == wanted).expect("there is such an entry");
                self.bytes[at(layout(self.kind).table_first) + index * DESCRIPTOR_BYTES + 9] ^= 4;
            }
            // A kill between the stores of an entry: the first word says so, and of the others some are there.
            ["an", "entry", "is", "half", "stored"] => {
                let table = at(layout(self.kind).table_first);
                let mut entries = self.bytes[table..].chunks_exact_mut(DESCRIPTOR_BYTES);
                let entry = entries.find(|entry| entry.iter().all(|byte| *byte == 0)).expect("an entry is free");
                entry[..8].copy_from_slice(&DESCRIPTOR_UNFINISHED.to_le_bytes());
                entry[8..24].fill(0xab);
            }
            other => panic!("{other:?} is no damage"),
        }
    }
}

/// Of a batch, its place in the log and what it vouches for.
fn told(batch: &Batch) -> String {
    let records: Vec<String> = batch.records.iter().map(|record| words::record(record, Term(0))).collect();
    format!("batch {} [{}], synced through {}", batch.sequence, records.join(", "), batch.synced_through)
}

fn asked(effect: &Effect) -> Option<String> {
    Some(match effect {
        Effect::Describe { index, bytes } => match Descriptor::decode(&ID, u64::from(*index), bytes) {
            Ok(Some(record)) => format!("stores entry {}", words::record(&record, Term(0))),
            _ => "frees an entry".into(),
        },
        // The superblock, and the two places of the checkpoint behind it.
        Effect::TierWrite { at: TierBlock(0), .. } => "writes the superblock".into(),
        Effect::TierWrite { at: TierBlock(1 | 2), .. } => "writes the checkpoint".into(),
        Effect::TierWrite { head, frames, .. } if frames.is_empty() && head.iter().all(|byte| *byte == 0) => {
            "erases the place of a batch or summary".into()
        }
        Effect::TierWrite { at, head, .. } => match Batch::decode(&ID, *at, head) {
            Ok(batch) => format!("writes {}", told(&batch)),
            Err(_) => match Summary::decode(&ID, *at, head) {
                Ok(summary) => format!("writes the summary of batches {}-{}", summary.first_batch, summary.last_batch),
                Err(_) => "writes to the tier".into(),
            },
        },
        Effect::TierSync { .. } => "syncs the tier".into(),
        Effect::TierRead { frames, .. } => {
            let blocks: Vec<String> = frames.iter().map(|(_, check)| check.block.to_string()).collect();
            format!("reads from the tier: block {}", blocks.join(" "))
        }
        Effect::BackingRead { at, .. } => format!("reads from the backing: block {at}"),
        _ => return None,
    })
}

impl Stand for Tier {
    fn command(&mut self, words: &[&str]) -> Vec<String> {
        match words {
            ["start"] => self.start(),
            ["kill"] => self.kill(),
            ["show"] => self.show(),
            ["write", block, value] => {
                let request = self.life().write_request(number(block), 1, number(value) as u8);
                self.request(request);
            }
            ["flush"] => self.request(Request::Flush),
            ["read", block] => {
                let value = self.life().read(number(block));
                let told = value.map_or_else(|_| "an error".into(), |value| format!("{value}"));
                self.lines.push(format!("block {block} = {told}"));
            }
            ["damage:", words @ ..] => self.damage(words),
            other => panic!("{other:?} is no command"),
        }
        let lines = std::mem::take(&mut self.lines);
        let runs = lines.chunk_by(|a, b| a == b).map(|run| match run.len() {
            1 => format!("  {}", run[0]),
            times => format!("  {}, {times} times", run[0]),
        });
        runs.collect()
    }
}
