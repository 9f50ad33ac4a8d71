//! Replays a recording of the kernel's dm-log-writes target to any moment of a power cut.
//!
//! The recorder logs a write when it has completed **and** a later flush has completed too, in the order of
//! completion; FUA writes and marks at once. So the disk at "after entry n" is what a disk with a volatile cache
//! keeps in the worst case. Between two flushes any part of the unflushed writes may have reached the media, torn at
//! 512 bytes: [`Cut::Between`] draws such a part from a seed.
//!
//! Format (linux/drivers/md/dm-log-writes.c, version 1): a superblock in the first sector, then entries of one sector
//! each, followed by their data (marks keep theirs inside the entry's sector, discards have none).

use crate::rng::Rng;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

const MAGIC: u64 = 0x6a_7366_7773_6872;
const ENTRY_HEAD_BYTES: usize = 32;
const FLAG_FLUSH: u64 = 1;
const FLAG_FUA: u64 = 2;
const FLAG_DISCARD: u64 = 4;
const FLAG_MARK: u64 = 8;

/// One entry of the recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// First byte on the recorded disk.
    pub offset: u64,
    /// Bytes written or discarded.
    pub length: u64,
    /// A flush completed here.
    pub flush: bool,
    /// The write itself was forced to the media.
    pub fua: bool,
    /// A discard.
    pub discard: bool,
    /// Text of a mark.
    pub mark: Option<String>,
    data_at: u64,
}

/// A recording.
#[derive(Debug)]
pub struct Log {
    file: File,
    /// The entries in order.
    pub entries: Vec<Entry>,
}

/// A file that stands for a stretch of the recorded disk.
#[derive(Debug)]
pub struct Part {
    /// First byte of the recorded disk that lies in it.
    pub from: u64,
    /// One past the last.
    pub to: u64,
    /// The file.
    pub file: File,
}

/// A moment of a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Every entry before this one is on the media, nothing after it.
    Before(usize),
    /// Every entry before `flushed` is on the media, of the writes in `flushed..until` a part drawn from the seed.
    Between {
        /// One past the last flush.
        flushed: usize,
        /// First entry that had not begun to land.
        until: usize,
        /// Which part.
        seed: u64,
    },
}

impl Cut {
    /// First entry that has not certainly happened.
    pub fn certain(&self) -> usize {
        match *self {
            Cut::Before(at) => at,
            Cut::Between { flushed, .. } => flushed,
        }
    }

    /// The entries that may have happened end here.
    pub fn until(&self) -> usize {
        match *self {
            Cut::Before(at) => at,
            Cut::Between { until, .. } => until,
        }
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

impl Log {
    /// Reads the superblock and all entries' heads.
    pub fn open(path: &Path) -> Result<Log, String> {
        let fail = |what: String| format!("recording {}: {what}", path.display());
        let file = File::open(path).map_err(|e| fail(e.to_string()))?;
        let mut head = [0; 512];
        file.read_exact_at(&mut head, 0).map_err(|e| fail(format!("superblock: {e}")))?;
        if word(&head, 0) != MAGIC || word(&head, 8) != 1 {
            return Err(fail("not a dm-log-writes recording of version 1".into()));
        }
        let count = word(&head, 16);
        let sector_bytes = u64::from(u32::from_le_bytes(head[24..28].try_into().expect("four bytes")));
        if !(512..=4096).contains(&sector_bytes) || !sector_bytes.is_power_of_two() {
            return Err(fail(format!("sector size {sector_bytes}")));
        }
        let mut entries = Vec::with_capacity(count as usize);
        let mut at = sector_bytes;
        let mut sector = vec![0; sector_bytes as usize];
        for number in 0..count {
            file.read_exact_at(&mut sector, at).map_err(|e| fail(format!("entry {number} of {count}: {e}")))?;
            let flags = word(&sector, 16);
            let length = word(&sector, 8) * sector_bytes;
            let mark = if flags & FLAG_MARK != 0 {
                let bytes = word(&sector, 24) as usize;
                let text = sector.get(ENTRY_HEAD_BYTES..ENTRY_HEAD_BYTES + bytes);
                let text = text.ok_or_else(|| fail(format!("entry {number}: a mark of {bytes} bytes")))?;
                Some(String::from_utf8_lossy(text).trim_end_matches('\0').to_owned())
            } else {
                None
            };
            let discard = flags & FLAG_DISCARD != 0;
            let data_at = at + sector_bytes;
            entries.push(Entry {
                offset: word(&sector, 0) * sector_bytes,
                length,
                flush: flags & FLAG_FLUSH != 0,
                fua: flags & FLAG_FUA != 0,
                discard,
                mark,
                data_at,
            });
            at = data_at + if discard { 0 } else { length };
        }
        Ok(Log { file, entries })
    }

    /// Applies one entry.
    pub fn apply(&self, entry: &Entry, parts: &[Part]) -> Result<(), String> {
        self.apply_range(entry, 0, entry.length, parts)
    }

    fn apply_range(&self, entry: &Entry, from: u64, to: u64, parts: &[Part]) -> Result<(), String> {
        if entry.mark.is_some() || from == to {
            return Ok(());
        }
        let mut bytes = vec![0; (to - from) as usize];
        if !entry.discard {
            self.file
                .read_exact_at(&mut bytes, entry.data_at + from)
                .map_err(|e| format!("recording: data of the write at {}: {e}", entry.offset))?;
        }
        let (start, end) = (entry.offset + from, entry.offset + to);
        for part in parts {
            let (a, b) = (start.max(part.from), end.min(part.to));
            if a < b {
                let piece = &bytes[(a - start) as usize..(b - start) as usize];
                part.file.write_all_at(piece, a - part.from).map_err(|e| format!("replay at {a}: {e}"))?;
            }
        }
        Ok(())
    }

    /// Applies what a cut leaves beyond its certain entries.
    pub fn apply_uncertain(&self, cut: &Cut, parts: &[Part]) -> Result<(), String> {
        let Cut::Between { flushed, until, seed } = *cut else { return Ok(()) };
        let mut rng = Rng::new(seed);
        for entry in &self.entries[flushed..until] {
            if entry.fua {
                self.apply(entry, parts)?;
                continue;
            }
            let sectors = entry.length / 512;
            match rng.below(4) {
                0 => {}
                1 if sectors > 1 && !entry.discard => {
                    // Torn: any sectors of it, not only a head.
                    for sector in 0..sectors {
                        if rng.chance(50) {
                            self.apply_range(entry, sector * 512, (sector + 1) * 512, parts)?;
                        }
                    }
                }
                _ => self.apply(entry, parts)?,
            }
        }
        Ok(())
    }

    /// About `wanted` cuts: after each flush or FUA write, and between them; all of them when there are fewer,
    /// evenly spread when there are more.
    pub fn cuts(&self, wanted: usize, seed: u64) -> Vec<Cut> {
        let mut rng = Rng::new(seed);
        let mut all = Vec::new();
        let mut flushed = 0;
        for (i, entry) in self.entries.iter().enumerate() {
            if i > flushed + 1 && (entry.flush || entry.fua || rng.chance(10)) {
                all.push(Cut::Between { flushed, until: i, seed: rng.next() });
            }
            if entry.flush {
                flushed = i + 1;
            }
            if entry.flush || entry.fua {
                all.push(Cut::Before(i + 1));
            }
        }
        if all.len() <= wanted {
            return all;
        }
        (0..wanted).map(|i| all[i * all.len() / wanted]).collect()
    }

    /// The last mark among the first `count` entries.
    pub fn last_mark(&self, count: usize) -> Option<&str> {
        self.entries[..count].iter().rev().find_map(|e| e.mark.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// A recording as the kernel writes it: superblock, then `(flags, sector, data or mark)`.
    fn recording(name: &str, entries: &[(u64, u64, &[u8])]) -> PathBuf {
        let mut bytes = vec![0u8; 512];
        bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[8..16].copy_from_slice(&1u64.to_le_bytes());
        bytes[16..24].copy_from_slice(&(entries.len() as u64).to_le_bytes());
        bytes[24..28].copy_from_slice(&512u32.to_le_bytes());
        for &(flags, sector, data) in entries {
            let mut head = vec![0u8; 512];
            let mark = flags & FLAG_MARK != 0;
            head[..8].copy_from_slice(&sector.to_le_bytes());
            let sectors = if mark { 0 } else { data.len() as u64 / 512 };
            head[8..16].copy_from_slice(&sectors.to_le_bytes());
            head[16..24].copy_from_slice(&flags.to_le_bytes());
            if mark {
                head[24..32].copy_from_slice(&(data.len() as u64).to_le_bytes());
                head[32..32 + data.len()].copy_from_slice(data);
            }
            bytes.extend_from_slice(&head);
            if !mark && flags & FLAG_DISCARD == 0 {
                bytes.extend_from_slice(data);
            }
        }
        let path = std::env::temp_dir().join(format!("forebay-recording-{}-{name}", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        path
    }

    fn part(name: &str, from: u64, to: u64) -> (PathBuf, Part) {
        let path = std::env::temp_dir().join(format!("forebay-part-{}-{name}", std::process::id()));
        let file = File::options().create(true).truncate(true).read(true).write(true).open(&path).unwrap();
        file.set_len(to - from).unwrap();
        (path, Part { from, to, file })
    }

    #[test]
    fn a_replay_puts_each_write_on_its_part_and_knows_marks() {
        let path = recording(
            "replay",
            &[
                (0, 0, &[1; 1024]),
                (0, 3, &[2; 1024]),
                (FLAG_FLUSH, 0, &[]),
                (FLAG_MARK, 0, b"flush 7"),
                (FLAG_FUA, 7, &[3; 512]),
                (FLAG_DISCARD, 0, &[0; 512]),
            ],
        );
        let log = Log::open(&path).unwrap();
        assert_eq!(log.entries.len(), 6);
        assert_eq!(log.entries[3].mark.as_deref(), Some("flush 7"));
        assert_eq!((log.last_mark(3), log.last_mark(4)), (None, Some("flush 7")));
        let (path_a, a) = part("a", 0, 2048);
        let (path_b, b) = part("b", 2048, 4096);
        let parts = [a, b];
        for entry in &log.entries {
            log.apply(entry, &parts).unwrap();
        }
        let (a, b) = (std::fs::read(&path_a).unwrap(), std::fs::read(&path_b).unwrap());
        assert_eq!((a[0], a[511], a[512], a[1024], a[1536]), (0, 0, 1, 0, 2), "the first sector was discarded");
        assert_eq!((b[0], b[512], b[1536]), (2, 0, 3), "the second write crosses into the second part");
        for path in [path, path_a, path_b] {
            std::fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn cuts_lie_after_each_flush_and_between() {
        let path = recording(
            "cuts",
            &[(0, 0, &[1; 512]), (0, 1, &[1; 512]), (FLAG_FLUSH, 0, &[]), (FLAG_FUA, 2, &[1; 512]), (0, 3, &[1; 512])],
        );
        let log = Log::open(&path).unwrap();
        let cuts = log.cuts(100, 1);
        assert!(cuts.contains(&Cut::Before(3)) && cuts.contains(&Cut::Before(4)), "{cuts:?}");
        assert!(cuts.iter().any(|c| matches!(c, Cut::Between { flushed: 0, until: 2, .. })), "{cuts:?}");
        assert_eq!(log.cuts(1, 1).len(), 1);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_file_that_is_no_recording_is_refused() {
        let path = std::env::temp_dir().join(format!("forebay-recording-{}-none", std::process::id()));
        std::fs::write(&path, [0; 1024]).unwrap();
        assert!(Log::open(&path).unwrap_err().contains("not a dm-log-writes recording"));
        std::fs::remove_file(path).unwrap();
    }
}
