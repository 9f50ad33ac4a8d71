//! The journal of a pattern load: fixed records, appended by one `write` each, so that it survives the death of the
//! load's process and needs no sync. It lies outside the volume under test.
//!
//! ```text
//! record = kind u8, op u8, fua u8, exact u8, error u32, seq u64, offset u64, length u64   (32 bytes, little-endian)
//! ```
//! The first record is a `Begin`; each further load on the same journal appends another. A half-written last record
//! is dropped.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

const RECORD_BYTES: usize = 32;

/// What a request does to the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Pattern sectors are written.
    Write,
    /// Zeros are written, the range stays allocated.
    Zero,
    /// The range is trimmed; the product promises that it reads as zeros.
    Trim,
    /// A flush, which is the client's barrier.
    Flush,
}

/// One line of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// A load begins, or goes on, with this journal.
    Begin {
        /// Identity of the journal; the same in all its `Begin`s.
        run: u64,
        /// First byte of the area that the load keeps to.
        area_from: u64,
        /// One past its last byte.
        area_to: u64,
        /// Nothing is in flight while a barrier is.
        exact: bool,
    },
    /// A request is about to be sent.
    Issue {
        /// Number of the request; it strictly grows.
        seq: u64,
        /// What it asks for.
        op: Op,
        /// It is forced to the media before it is answered (FUA).
        fua: bool,
        /// First byte of the volume that it is about.
        offset: u64,
        /// How many bytes it is about.
        length: u64,
    },
    /// A reply to a request has arrived.
    Reply {
        /// Number of the request that it answers.
        seq: u64,
        /// 0, or the error number.
        error: u32,
    },
    /// A checker has read a sector whose content was open (a write without a reply): from now on it must stay.
    Settled {
        /// First byte of the sector.
        offset: u64,
        /// Write found in it; 0: zeros.
        seq: u64,
    },
}

impl Record {
    fn encode(&self) -> [u8; RECORD_BYTES] {
        let mut b = [0; RECORD_BYTES];
        let mut words = |seq: u64, offset: u64, length: u64| {
            b[8..16].copy_from_slice(&seq.to_le_bytes());
            b[16..24].copy_from_slice(&offset.to_le_bytes());
            b[24..].copy_from_slice(&length.to_le_bytes());
        };
        match *self {
            Record::Begin { run, area_from, area_to, exact } => {
                words(run, area_from, area_to);
                b[0] = 1;
                b[3] = u8::from(exact);
            }
            Record::Issue { seq, op, fua, offset, length } => {
                words(seq, offset, length);
                b[0] = 2;
                b[1] = match op {
                    Op::Write => 1,
                    Op::Zero => 2,
                    Op::Trim => 3,
                    Op::Flush => 4,
                };
                b[2] = u8::from(fua);
            }
            Record::Reply { seq, error } => {
                words(seq, 0, 0);
                b[0] = 3;
                b[4..8].copy_from_slice(&error.to_le_bytes());
            }
            Record::Settled { offset, seq } => {
                words(seq, offset, 0);
                b[0] = 4;
            }
        }
        b
    }

    fn decode(b: &[u8]) -> Result<Record, String> {
        let word = |at: usize| u64::from_le_bytes(b[at..at + 8].try_into().expect("eight bytes"));
        let (seq, offset, length) = (word(8), word(16), word(24));
        Ok(match b[0] {
            1 => Record::Begin { run: seq, area_from: offset, area_to: length, exact: b[3] == 1 },
            2 => {
                let op = match b[1] {
                    1 => Op::Write,
                    2 => Op::Zero,
                    3 => Op::Trim,
                    4 => Op::Flush,
                    other => return Err(format!("unknown operation {other}")),
                };
                Record::Issue { seq, op, fua: b[2] == 1, offset, length }
            }
            3 => Record::Reply { seq, error: u32::from_le_bytes(b[4..8].try_into().expect("four bytes")) },
            4 => Record::Settled { offset, seq },
            other => return Err(format!("unknown kind {other}")),
        })
    }
}

/// A journal open for appending.
#[derive(Debug)]
pub struct Journal {
    file: File,
    /// Identity of the journal, in every sector of its load.
    pub run: u64,
    /// Highest number given to a request so far.
    pub seq: u64,
}

impl Journal {
    /// Opens the journal, or begins a new one, and records that a load begins.
    pub fn begin(path: &Path, area: std::ops::Range<u64>, exact: bool) -> Result<Journal, String> {
        let (run, seq) = if path.exists() {
            let history = History::read(path)?;
            if (history.area_from, history.area_to) != (area.start, area.end) {
                return Err(format!(
                    "{}: made for bytes {}..{}, not for {}..{}; use another journal",
                    path.display(),
                    history.area_from,
                    history.area_to,
                    area.start,
                    area.end
                ));
            }
            (history.run, history.seq)
        } else {
            (crate::rng::Rng::fresh_seed(), 0)
        };
        let mut journal = Journal { file: open_append(path)?, run, seq };
        journal.append(Record::Begin { run, area_from: area.start, area_to: area.end, exact });
        Ok(journal)
    }

    /// Appends one record.
    ///
    /// A journal that cannot be written would make every later verdict void, so that ends the process.
    pub fn append(&mut self, record: Record) {
        self.file.write_all(&record.encode()).expect("the journal must take every record; is its disk full?");
    }

    /// Number for the next request.
    pub fn next_seq(&mut self) -> u64 {
        self.seq += 1;
        self.seq
    }
}

/// Appends what a checker has settled.
pub fn append_settled(path: &Path, settled: &[Record]) -> Result<(), String> {
    let mut bytes = Vec::with_capacity(settled.len() * RECORD_BYTES);
    for record in settled {
        bytes.extend_from_slice(&record.encode());
    }
    open_append(path)?.write_all(&bytes).map_err(|e| format!("{}: {e}", path.display()))
}

fn open_append(path: &Path) -> Result<File, String> {
    OpenOptions::new().append(true).create(true).open(path).map_err(|e| format!("journal {}: {e}", path.display()))
}

/// A journal as read back.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Identity of the journal, by which a load that goes on knows it.
    pub run: u64,
    /// First byte of the area that loads keep to.
    pub area_from: u64,
    /// One past the area's last byte.
    pub area_to: u64,
    /// Every load of it kept its barriers apart from its writes.
    pub exact: bool,
    /// The highest number of a request.
    pub seq: u64,
    /// All lines, in the order in which they were written.
    pub records: Vec<Record>,
}

impl History {
    /// Reads and checks a journal.
    pub fn read(path: &Path) -> Result<History, String> {
        let mut bytes = Vec::new();
        let read = |bytes: &mut Vec<u8>| -> io::Result<()> { File::open(path)?.read_to_end(bytes).map(|_| ()) };
        read(&mut bytes).map_err(|e| format!("journal {}: {e}", path.display()))?;
        History::from_bytes(&bytes).map_err(|e| format!("journal {}: {e}", path.display()))
    }

    fn from_bytes(bytes: &[u8]) -> Result<History, String> {
        let mut records = Vec::with_capacity(bytes.len() / RECORD_BYTES);
        for (i, b) in bytes.chunks_exact(RECORD_BYTES).enumerate() {
            records.push(Record::decode(b).map_err(|e| format!("record {i}: {e}"))?);
        }
        History::from_records(records)
    }

    /// From records; the first must be a `Begin`.
    pub fn from_records(records: Vec<Record>) -> Result<History, String> {
        let Some(&Record::Begin { run, area_from, area_to, .. }) = records.first() else {
            return Err("does not start with a Begin record".into());
        };
        let mut history = History { run, area_from, area_to, exact: true, seq: 0, records: Vec::new() };
        for (i, record) in records.iter().enumerate() {
            match *record {
                Record::Begin { run: r, area_from: from, area_to: to, exact } => {
                    if (r, from, to) != (run, area_from, area_to) {
                        return Err(format!("record {i}: a Begin of another journal"));
                    }
                    history.exact &= exact;
                }
                Record::Issue { seq, offset, length, .. } => {
                    if seq <= history.seq || offset + length > area_to {
                        return Err(format!("record {i}: request #{seq} out of order or outside the area"));
                    }
                    history.seq = seq;
                }
                Record::Reply { seq, .. } if seq > history.seq => {
                    return Err(format!("record {i}: a reply to request #{seq}, which was never issued"));
                }
                Record::Reply { .. } | Record::Settled { .. } => {}
            }
        }
        history.records = records;
        Ok(history)
    }

    /// The same journal as it stood when the reply to this request had been recorded.
    pub fn until_reply(&self, seq: u64) -> Option<&[Record]> {
        let at = self.records.iter().position(|r| matches!(r, Record::Reply { seq: s, .. } if *s == seq))?;
        Some(&self.records[..=at])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_survive_encoding_and_a_half_written_tail_is_dropped() {
        let records = vec![
            Record::Begin { run: 5, area_from: 0, area_to: 1 << 20, exact: true },
            Record::Issue { seq: 1, op: Op::Write, fua: true, offset: 512, length: 1024 },
            Record::Issue { seq: 2, op: Op::Trim, fua: false, offset: 0, length: 4096 },
            Record::Reply { seq: 1, error: 0 },
            Record::Reply { seq: 2, error: 5 },
            Record::Settled { offset: 512, seq: 1 },
        ];
        let mut bytes: Vec<u8> = records.iter().flat_map(|r| r.encode()).collect();
        bytes.extend_from_slice(&[2; 17]);
        let history = History::from_bytes(&bytes).unwrap();
        assert_eq!(history.records, records);
        assert_eq!((history.run, history.seq, history.exact), (5, 2, true));
        assert_eq!(history.until_reply(1).unwrap().len(), 4);
        assert!(history.until_reply(3).is_none());
        bytes[32] = 77;
        assert!(History::from_bytes(&bytes).unwrap_err().contains("record 1: unknown kind 77"));
    }
}
