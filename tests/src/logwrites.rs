//! Replays recordings of the kernel's dm-log-writes target to any moment of a power cut.
//!
//! The recorder logs a write when it has completed and a later flush was sent, in the order of completion; FUA
//! writes, flushes and marks at once. So nothing that is certain is ever missing before a mark that was placed after
//! the client had its answer. A write is certainly on the media when it was forced (FUA), or when a flush completed
//! after it; all others may have reached the media or not, torn at 512 bytes.
//!
//! Two devices, tier and backing, have a recording each. One recorder under both would not do: it gives completed
//! writes to the next flush that is *sent*, of whichever device, and logs them when that flush *completes*, maybe
//! after the flush that really covered them; a cut in between would lose what was safe. Their common clock are the
//! marks, each placed in the tier's recording first. So a cut takes the backing at a moment that is never before the
//! tier's: what the backing may then have too much are writes younger than every promise of that moment.
//!
//! Format (linux/drivers/md/dm-log-writes.c, version 1): a superblock in the first sector, then entries of one sector
//! each, followed by their data (marks keep theirs inside the entry's sector, discards have none).

use crate::rng::Rng;
use std::fs::File;
use std::ops::Range;
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
    /// Bytes that were written or discarded.
    pub length: u64,
    /// A flush completed here.
    pub flush: bool,
    /// The write itself was forced to the media.
    pub fua: bool,
    /// It is a discard, and has no data.
    pub discard: bool,
    /// Text of the mark, if it is one.
    pub mark: Option<String>,
    data_at: u64,
}

/// A recording of dm-log-writes, as it lies on its device.
#[derive(Debug)]
pub struct Log {
    file: File,
    /// Its entries, in the order in which they were recorded.
    pub entries: Vec<Entry>,
}

/// A moment of a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Entries of the tier's recording before this one had been sent.
    pub tier: usize,
    /// Entries of the backing's recording before this one had been sent.
    pub backing: usize,
    /// What becomes of those that were not certainly on the media.
    pub keep: Keep,
}

/// Which of the uncertain writes have reached the media.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// None of them have.
    Nothing,
    /// A part of them, some torn, drawn from this seed.
    Some(u64),
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

    fn data(&self, entry: &Entry) -> Result<Vec<u8>, String> {
        let mut bytes = vec![0; entry.length as usize];
        // A discarded range may hold anything afterwards; zeros are what the guest's disk gives.
        if !entry.discard {
            self.file
                .read_exact_at(&mut bytes, entry.data_at)
                .map_err(|e| format!("recording: data of the write at {}: {e}", entry.offset))?;
        }
        Ok(bytes)
    }

    /// The last mark among the first `count` entries.
    pub fn last_mark(&self, count: usize) -> Option<&str> {
        self.entries[..count].iter().rev().find_map(|e| e.mark.as_deref())
    }

    /// A place in this recording that is not before entry `at` of the other, whose marks were placed first.
    fn not_before(&self, other: &Log, at: usize) -> usize {
        let next = other.entries[at..].iter().find_map(|e| e.mark.as_deref());
        let place = next.and_then(|mark| self.entries.iter().position(|e| e.mark.as_deref() == Some(mark)));
        place.unwrap_or(self.entries.len())
    }
}

/// About `wanted` cuts in order: after each flush or forced write of the tier, and between them with a part of what was
/// under way; all of them when there are fewer, evenly spread when there are more.
pub fn cuts(tier: &Log, backing: &Log, wanted: usize, seed: u64) -> Vec<Cut> {
    let mut rng = Rng::new(seed);
    let mut all = Vec::new();
    for (i, entry) in tier.entries.iter().enumerate() {
        if entry.flush || entry.fua {
            all.push((i, Keep::Some(rng.next())));
            all.push((i + 1, Keep::Nothing));
        } else if entry.mark.is_some() || rng.chance(2) {
            all.push((i + 1, Keep::Some(rng.next())));
        }
    }
    if all.len() > wanted {
        all = (0..wanted).map(|i| all[i * all.len() / wanted]).collect();
    }
    all.into_iter().map(|(at, keep)| Cut { tier: at, backing: backing.not_before(tier, at), keep }).collect()
}

/// As [`cuts`], of the backing: around each of its flushes and forced writes, and between them. The tier is taken as
/// the last mark before saw it.
pub fn backing_cuts(tier: &Log, backing: &Log, wanted: usize, seed: u64) -> Vec<Cut> {
    let mut rng = Rng::new(seed);
    let mut all = Vec::new();
    let mut tier_at = 0;
    for (i, entry) in backing.entries.iter().enumerate() {
        if let Some(mark) = &entry.mark {
            let same = tier.entries.iter().position(|e| e.mark.as_ref() == Some(mark));
            tier_at = same.map_or(tier_at, |place| place + 1);
        } else if entry.flush || entry.fua {
            all.push(Cut { tier: tier_at, backing: i, keep: Keep::Some(rng.next()) });
            all.push(Cut { tier: tier_at, backing: i + 1, keep: Keep::Nothing });
        } else if rng.chance(10) {
            all.push(Cut { tier: tier_at, backing: i + 1, keep: Keep::Some(rng.next()) });
        }
    }
    if all.len() > wanted {
        all = (0..wanted).map(|i| all[i * all.len() / wanted]).collect();
    }
    all
}

/// A write that has not certainly reached the media: what of it a later forced write has not replaced.
#[derive(Debug)]
struct Uncertain {
    entry: usize,
    left: Vec<Range<u64>>,
}

/// A recorded disk at one moment.
#[derive(Debug)]
pub struct Disk<'l> {
    log: &'l Log,
    certain: Vec<u8>,
    uncertain: Vec<Uncertain>,
    at: usize,
    deaf: bool,
    whole: Range<u64>,
}

impl<'l> Disk<'l> {
    /// The empty disk before the first entry.
    pub fn new(log: &'l Log, length: u64) -> Disk<'l> {
        Disk::over(log, vec![0; length as usize])
    }

    /// The disk before the first entry, which held this.
    pub fn over(log: &'l Log, before: Vec<u8>) -> Disk<'l> {
        Disk { log, certain: before, uncertain: Vec::new(), at: 0, deaf: false, whole: 0..0 }
    }

    /// These bytes are written as one, or not at all: no write of them is torn.
    pub fn never_tears(self, whole: Range<u64>) -> Disk<'l> {
        Disk { whole, ..self }
    }

    /// A disk that acknowledges flushes and FUA and does nothing: to see a check fail.
    pub fn deaf_to_flushes(log: &'l Log, length: u64) -> Disk<'l> {
        Disk { deaf: true, ..Disk::new(log, length) }
    }

    /// Takes the entries up to this one (it not included).
    pub fn advance(&mut self, before: usize) -> Result<(), String> {
        assert!(before >= self.at, "a replay goes forward only");
        while self.at < before {
            let entry = &self.log.entries[self.at];
            if entry.mark.is_none() {
                if entry.offset + entry.length > self.certain.len() as u64 {
                    return Err(format!("entry {}: lies behind the end of the recorded disk", self.at));
                }
                if entry.flush && !self.deaf {
                    self.flush()?;
                }
                let whole = entry.offset..entry.offset + entry.length;
                if entry.fua && !self.deaf {
                    self.force(&whole)?;
                } else if entry.length > 0 {
                    self.uncertain.push(Uncertain { entry: self.at, left: vec![whole] });
                }
            }
            self.at += 1;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), String> {
        for write in std::mem::take(&mut self.uncertain) {
            let entry = &self.log.entries[write.entry];
            let data = self.log.data(entry)?;
            for range in write.left {
                let piece = &data[(range.start - entry.offset) as usize..(range.end - entry.offset) as usize];
                self.certain[range.start as usize..range.end as usize].copy_from_slice(piece);
            }
        }
        Ok(())
    }

    fn force(&mut self, whole: &Range<u64>) -> Result<(), String> {
        let data = self.log.data(&self.log.entries[self.at])?;
        self.certain[whole.start as usize..whole.end as usize].copy_from_slice(&data);
        for write in &mut self.uncertain {
            let old = std::mem::take(&mut write.left);
            for range in old {
                let before = range.start..range.end.min(whole.start);
                let after = range.start.max(whole.end)..range.end;
                write.left.extend([before, after].into_iter().filter(|r| r.start < r.end));
            }
        }
        Ok(())
    }

    /// The disk as power was cut now.
    pub fn after_cut(&self, keep: Keep) -> Result<Vec<u8>, String> {
        let mut disk = self.certain.clone();
        if let Keep::Some(seed) = keep {
            let mut rng = Rng::new(seed);
            // Some cuts lose nearly everything that was under way, some nearly nothing.
            let percent = rng.below(101) as u32;
            for write in &self.uncertain {
                let entry = &self.log.entries[write.entry];
                let torn = rng.chance(20);
                if !torn && !rng.chance(percent) {
                    continue;
                }
                let data = self.log.data(entry)?;
                let lands_whole = rng.chance(50);
                for range in &write.left {
                    for sector in range.clone().step_by(512) {
                        let lands = if self.whole.contains(&sector) { lands_whole } else { rng.chance(50) };
                        if !torn || lands {
                            let from = (sector - entry.offset) as usize;
                            disk[sector as usize..sector as usize + 512].copy_from_slice(&data[from..from + 512]);
                        }
                    }
                }
            }
        }
        Ok(disk)
    }

    /// Writes and discards whose fate a cut now would decide.
    pub fn uncertain_count(&self) -> usize {
        self.uncertain.len()
    }
}

/// Writes bytes to a new file, leaving holes where there are zeros.
pub fn write_sparse(path: &Path, bytes: &[u8]) -> Result<(), String> {
    let write = || -> std::io::Result<()> {
        let file = File::create(path)?;
        file.set_len(bytes.len() as u64)?;
        for (i, chunk) in bytes.chunks(1 << 16).enumerate() {
            if chunk.iter().any(|&b| b != 0) {
                file.write_all_at(chunk, (i as u64) << 16)?;
            }
        }
        Ok(())
    };
    write().map_err(|e| format!("{}: {e}", path.display()))
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

    #[test]
    fn flushed_and_forced_writes_are_certain_and_others_are_not() {
        let path = recording(
            "certain",
            &[
                (0, 0, &[1; 1024]),
                (FLAG_FLUSH, 0, &[]),
                (FLAG_MARK, 0, b"7"),
                (0, 4, &[2; 1024]),
                (FLAG_FUA, 5, &[3; 512]),
                (FLAG_FLUSH, 0, &[]),
            ],
        );
        let log = Log::open(&path).unwrap();
        assert_eq!((log.last_mark(2), log.last_mark(3)), (None, Some("7")));
        let mut disk = Disk::new(&log, 4096);
        let look = |disk: &Disk, keep| -> [u8; 3] {
            let bytes = disk.after_cut(keep).unwrap();
            [bytes[0], bytes[2048], bytes[2560]]
        };
        disk.advance(1).unwrap();
        assert_eq!(look(&disk, Keep::Nothing), [0, 0, 0]);
        disk.advance(3).unwrap();
        assert_eq!(look(&disk, Keep::Nothing), [1, 0, 0]);
        disk.advance(5).unwrap();
        assert_eq!(look(&disk, Keep::Nothing), [1, 0, 3]);
        let seen: std::collections::BTreeSet<[u8; 3]> = (0..64).map(|seed| look(&disk, Keep::Some(seed))).collect();
        assert_eq!(seen, [[1, 0, 3], [1, 2, 3]].into(), "the forced sector is never replaced by the older write");
        disk.advance(6).unwrap();
        assert_eq!(look(&disk, Keep::Nothing), [1, 2, 3]);
        let mut deaf = Disk::deaf_to_flushes(&log, 4096);
        deaf.advance(6).unwrap();
        assert_eq!(look(&deaf, Keep::Nothing), [0, 0, 0]);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_discard_that_was_not_flushed_is_uncertain_and_writes_tear_at_sectors() {
        let path = recording(
            "discard",
            &[(0, 0, &[1; 1024]), (FLAG_FLUSH, 0, &[]), (FLAG_DISCARD, 0, &[0; 512]), (0, 2, &[5; 1024])],
        );
        let log = Log::open(&path).unwrap();
        let mut disk = Disk::new(&log, 2048);
        disk.advance(4).unwrap();
        assert_eq!(disk.uncertain_count(), 2);
        let seen: std::collections::BTreeSet<(u8, u8, u8)> = (0..200)
            .map(|seed| {
                let bytes = disk.after_cut(Keep::Some(seed)).unwrap();
                (bytes[0], bytes[1024], bytes[1536])
            })
            .collect();
        for expected in [(1, 0, 0), (0, 5, 5), (1, 5, 0), (1, 0, 5)] {
            assert!(seen.contains(&expected), "{expected:?} is not among {seen:?}");
        }
        let disk = disk.never_tears(1024..2048);
        for seed in 0..200 {
            let bytes = disk.after_cut(Keep::Some(seed)).unwrap();
            assert_eq!(bytes[1024], bytes[1536], "these lie where nothing tears");
        }
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn cuts_lie_around_each_flush_and_the_backing_is_never_before_the_tier() {
        let tier = recording(
            "cuts-tier",
            &[
                (0, 0, &[1; 512]),
                (FLAG_FLUSH, 0, &[]),
                (FLAG_MARK, 0, b"1"),
                (FLAG_FUA, 2, &[1; 512]),
                (FLAG_MARK, 0, b"2"),
                (FLAG_FLUSH, 0, &[]),
            ],
        );
        let backing = recording("cuts-backing", &[(FLAG_MARK, 0, b"1"), (FLAG_FLUSH, 0, &[]), (FLAG_MARK, 0, b"2")]);
        let (tier_log, backing_log) = (Log::open(&tier).unwrap(), Log::open(&backing).unwrap());
        let of_backing = backing_cuts(&tier_log, &backing_log, 100, 1);
        assert!(of_backing.contains(&Cut { tier: 3, backing: 2, keep: Keep::Nothing }), "{of_backing:?}");
        assert!(of_backing.windows(2).all(|c| c[0].tier <= c[1].tier && c[0].backing <= c[1].backing), "forward only");
        let cuts = cuts(&tier_log, &backing_log, 100, 1);
        for (at, backing) in [(2, 0), (4, 2), (6, 3)] {
            assert!(cuts.contains(&Cut { tier: at, backing, keep: Keep::Nothing }), "{at}: {cuts:?}");
        }
        assert!(cuts.iter().any(|c| c.tier == 1 && c.keep != Keep::Nothing), "{cuts:?}");
        assert!(cuts.windows(2).all(|c| c[0].tier <= c[1].tier && c[0].backing <= c[1].backing), "forward only");
        assert_eq!(super::cuts(&tier_log, &backing_log, 1, 1).len(), 1);
        for path in [tier, backing] {
            std::fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn a_file_that_is_no_recording_is_refused() {
        let path = std::env::temp_dir().join(format!("forebay-recording-{}-none", std::process::id()));
        std::fs::write(&path, [0; 1024]).unwrap();
        assert!(Log::open(&path).unwrap_err().contains("not a dm-log-writes recording"));
        std::fs::remove_file(path).unwrap();
    }
}
