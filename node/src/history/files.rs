//! The files of the history: one for each volume and one for the node, all of one size, taken from the disk when they
//! are made. One thread writes them ([`super::writer`]); readers open them anew and take what matches its checksum.
//!
//! Nothing is synced: a kill loses nothing that was written, a power cut what the kernel had not written back, which is
//! half a minute. A history is not worth a sync each second.

use super::query;
use super::query::{Collector, Plan};
use anyhow::{Context, Result, bail};
use forebay_api::history::format::{BadHeader, FILE_BYTES, HEADER_BYTES, Owner, RINGS, Ring, SLOT_BYTES_MAX, Slot};
use forebay_api::history::{History, format};
use forebay_api::units::show_size;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// What must stay free beside a new file: a history never takes the last of a disk that records and tiers lie on as well.
const KEPT_FREE_BYTES: u64 = 64 << 20;
/// Slots that a reader takes at one time.
const READ_SLOTS: u64 = 512;

/// A file that is open for writing.
pub struct HistoryFile {
    owner: Owner,
    file: File,
    /// What an earlier life has left of the steps that go on now.
    earlier: [Option<Slot>; RINGS.len()],
}

/// What opening it has found.
pub struct Found {
    /// The history's file, as it was found or newly made.
    pub file: HistoryFile,
    /// Where a damaged one was put aside, and what was wrong with it.
    pub damaged: Option<(PathBuf, &'static str)>,
}

impl HistoryFile {
    /// Opens or makes it. `now`: seconds since 1970.
    pub fn open(dir: &Path, owner: Owner, now: u64) -> Result<Found> {
        let path = owner.path(dir);
        let mut damaged = None;
        if path.exists() {
            let file = open_rw(&path).with_context(|| format!("cannot open {}", path.display()))?;
            match read_header(&file) {
                Ok(Ok(found)) if found == owner && file.metadata()?.len() == FILE_BYTES => {
                    let earlier = std::array::from_fn(|ring| read_slot(&file, &owner, &RINGS[ring], now));
                    return Ok(Found { file: HistoryFile { owner, file, earlier }, damaged: None });
                }
                Ok(Err(BadHeader::Newer(version))) => {
                    bail!(
                        "{} has format {version}, and this version of forebay knows {} only; it is left as it is: move it away to \
                         begin a new one",
                        path.display(),
                        format::VERSION
                    );
                }
                Ok(Ok(_)) => damaged = Some("it is another volume's, or has another length"),
                Ok(Err(BadHeader::Damaged(why))) => damaged = Some(why),
                Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
            }
        }
        let aside = path.with_extension("history.damaged");
        if damaged.is_some() {
            std::fs::rename(&path, &aside).with_context(|| format!("cannot put {} aside", path.display()))?;
        }
        let file = make(dir, &path, &owner, now)?;
        let file = HistoryFile { owner, file, earlier: [None; RINGS.len()] };
        Ok(Found { file, damaged: damaged.map(|why| (aside, why)) })
    }

    /// Writes a slot of a ring; what an earlier life knew of the same step is kept.
    pub fn write(&mut self, ring: usize, slot: &Slot) -> Result<()> {
        let kind = self.owner.series();
        let merged = match &self.earlier[ring] {
            Some(earlier) if earlier.at == slot.at && RINGS[ring].step_s > 1 => query::merge(earlier, slot, kind),
            Some(_) | None => *slot,
        };
        let mut bytes = [0; SLOT_BYTES_MAX];
        let shape = &RINGS[ring];
        format::encode_slot(&self.owner, shape, &merged, kind.names().len(), &mut bytes);
        self.file
            .write_all_at(&bytes[..shape.slot_bytes()], shape.place(slot.at))
            .context("cannot write the history's file")
    }
}

/// Made aside and renamed, so that a file of that name is whole.
fn make(dir: &Path, path: &Path, owner: &Owner, now: u64) -> Result<File> {
    require_room(dir, FILE_BYTES)?;
    let aside = path.with_extension("history.new");
    let made = || -> std::io::Result<File> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&aside)?;
        reserve(&file)?;
        file.write_all_at(&format::encode_header(owner, now), 0)?;
        std::fs::rename(&aside, path)?;
        Ok(file)
    };
    let file = made();
    if file.is_err() {
        // What is half made takes room for nothing; it may not even be there.
        let _ = std::fs::remove_file(&aside);
    }
    file.with_context(|| format!("cannot make {} of {}", path.display(), show_size(FILE_BYTES)))
}

/// What is to be written must leave room for others.
pub fn require_room(dir: &Path, bytes: u64) -> Result<()> {
    let free = free_bytes(dir).with_context(|| format!("cannot ask how much room is in {}", dir.display()))?;
    if free < bytes + KEPT_FREE_BYTES {
        bail!(
            "no room for the history: it takes {} more, {} are to stay free, and {} has {} left; free some space there",
            show_size(bytes),
            show_size(KEPT_FREE_BYTES),
            dir.display(),
            show_size(free)
        );
    }
    Ok(())
}

/// Takes the room at once: a history that finds the disk full does so when it begins.
fn reserve(file: &File) -> std::io::Result<()> {
    // SAFETY: a call with a descriptor that is open and numbers.
    if unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, FILE_BYTES as libc::off_t) } == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    match error.raw_os_error() {
        // The file system knows no reservations; it grows as it is written.
        Some(libc::EOPNOTSUPP | libc::ENOSYS) => file.set_len(FILE_BYTES),
        _ => Err(error),
    }
}

fn free_bytes(dir: &Path) -> Result<u64> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(dir.as_os_str().as_bytes()).context("a path with a zero byte")?;
    let mut answer = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: a path that ends in a zero byte, and a place for one answer.
    if unsafe { libc::statvfs(path.as_ptr(), answer.as_mut_ptr()) } != 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    // SAFETY: the call has filled it.
    let answer = unsafe { answer.assume_init() };
    Ok(answer.f_bavail.saturating_mul(answer.f_frsize))
}

fn open_rw(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

fn read_header(file: &File) -> std::io::Result<Result<Owner, BadHeader>> {
    let mut bytes = [0; HEADER_BYTES];
    let mut have = 0;
    while have < bytes.len() {
        match file.read_at(&mut bytes[have..], have as u64)? {
            0 => break,
            more => have += more,
        }
    }
    Ok(format::decode_header(&bytes[..have]))
}

fn read_slot(file: &File, owner: &Owner, ring: &Ring, second: u64) -> Option<Slot> {
    let at = ring.begin(second);
    let mut bytes = [0; SLOT_BYTES_MAX];
    let bytes = &mut bytes[..ring.slot_bytes()];
    // One that cannot be read is as one that was never written; what is written next says if the disk is at fault.
    file.read_exact_at(bytes, ring.place(at)).ok()?;
    format::decode_slot(owner, ring, at, bytes)
}

/// Reads what a plan needs; a file that is not there yet has nothing in it.
pub fn read(dir: &Path, owner: &Owner, plan: Plan, series: &[usize]) -> Result<History> {
    let mut collector = Collector::new(plan, owner.series(), series);
    let path = owner.path(dir);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(collector.finish()),
        Err(error) => return Err(error).with_context(|| format!("cannot open {}", path.display())),
    };
    match read_header(&file).with_context(|| format!("cannot read {}", path.display()))? {
        Ok(found) if found == *owner => {}
        Ok(_) => bail!("{} is another volume's history", path.display()),
        Err(BadHeader::Newer(version)) => bail!("{} has format {version}, which is newer", path.display()),
        Err(BadHeader::Damaged(why)) => bail!("{} cannot be used: {why}", path.display()),
    }
    let ring = &plan.ring;
    let (step, size) = (u64::from(ring.step_s), ring.slot_bytes());
    let mut bytes = vec![0; READ_SLOTS as usize * size];
    // A ring holds its newest slots only: older steps would be looked for in the places of newer ones.
    let mut at = plan.from.max(plan.to.saturating_sub(ring.span_s()));
    at -= at % step;
    while at < plan.to {
        let number = at / step % u64::from(ring.slots);
        let count = ((plan.to - at) / step).min(READ_SLOTS).min(u64::from(ring.slots) - number).max(1);
        let bytes = &mut bytes[..count as usize * size];
        file.read_exact_at(bytes, ring.place(at)).with_context(|| format!("cannot read {}", path.display()))?;
        for (number, slot) in bytes.chunks_exact(size).enumerate() {
            let at = at + number as u64 * step;
            // One that is just being written is read once more.
            let slot = format::decode_slot(owner, ring, at, slot)
                .or_else(|| (slot[..8] == at.to_le_bytes()).then(|| read_slot(&file, owner, ring, at)).flatten());
            if let Some(slot) = slot {
                collector.take(&slot);
            }
        }
        at += count * step;
    }
    Ok(collector.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::query::Query;

    const US: Owner = Owner { kind: 1, id: [3; 16] };
    const NOW: u64 = 1_700_000_005;

    fn slot(at: u64, value: f32) -> Slot {
        let mut slot = Slot::empty(at);
        slot.seconds = 1;
        (slot.avg[0], slot.min[0], slot.max[0]) = (value, value, value);
        slot
    }

    fn seconds(dir: &Path, from: u64, to: u64) -> Vec<Option<f32>> {
        let query = Query { from, to, points: to - from, series: vec![0] };
        read(dir, &US, query::plan(&query, to), &[0]).unwrap().series["read_iops"].avg.clone()
    }

    #[test]
    fn what_was_written_is_read_and_the_ring_keeps_the_newest() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(seconds(dir.path(), NOW - 2, NOW), [None, None], "no file yet");
        let mut file = HistoryFile::open(dir.path(), US, NOW).unwrap().file;
        for second in 0..4000 {
            file.write(0, &slot(NOW + second, second as f32)).unwrap();
        }
        let end = NOW + 4000;
        assert_eq!(seconds(dir.path(), end - 3, end), [Some(3997.0), Some(3998.0), Some(3999.0)]);
        let hour = seconds(dir.path(), end - 3600, end);
        assert!(hour.iter().all(Option::is_some) && hour.len() == 3600 / 2 || hour.len() == 3600);
        assert_eq!(hour[0], Some(400.0));
    }

    #[test]
    fn a_torn_slot_is_a_gap_and_a_torn_header_puts_the_file_aside() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = HistoryFile::open(dir.path(), US, NOW).unwrap().file;
        for second in 0..3 {
            file.write(0, &slot(NOW + second, 1.0)).unwrap();
        }
        let path = US.path(dir.path());
        let raw = open_rw(&path).unwrap();
        raw.write_all_at(b"torn", RINGS[0].place(NOW + 1) + 20).unwrap();
        assert_eq!(seconds(dir.path(), NOW, NOW + 3), [Some(1.0), None, Some(1.0)]);
        let found = HistoryFile::open(dir.path(), US, NOW + 3).unwrap();
        assert!(found.damaged.is_none(), "a torn slot costs that slot only");
        raw.write_all_at(b"torn", 20).unwrap();
        let found = HistoryFile::open(dir.path(), US, NOW + 3).unwrap();
        let (aside, why) = found.damaged.unwrap();
        assert!(aside.exists() && why.contains("checksum"), "{why}");
        assert_eq!(seconds(dir.path(), NOW, NOW + 3), [None; 3]);
    }

    #[test]
    fn a_file_of_a_newer_version_is_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        drop(HistoryFile::open(dir.path(), US, NOW).unwrap());
        let path = US.path(dir.path());
        open_rw(&path).unwrap().write_all_at(&[9], 8).unwrap();
        let before = std::fs::read(&path).unwrap();
        let error = HistoryFile::open(dir.path(), US, NOW).err().unwrap().to_string();
        assert!(error.contains("format 9"), "{error}");
        assert!(std::fs::read(&path).unwrap() == before);
    }

    #[test]
    fn a_clock_that_was_set_back_writes_the_same_seconds_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = HistoryFile::open(dir.path(), US, NOW).unwrap().file;
        for second in 0..100 {
            file.write(0, &slot(NOW + second, 1.0)).unwrap();
        }
        for second in 0..10 {
            file.write(0, &slot(NOW + 50 + second, 2.0)).unwrap();
        }
        let line = seconds(dir.path(), NOW + 49, NOW + 61);
        assert_eq!((line[0], line[1], line[10], line[11]), (Some(1.0), Some(2.0), Some(2.0), Some(1.0)));
    }

    #[test]
    fn a_step_that_a_restart_parts_keeps_both_parts() {
        let dir = tempfile::tempdir().unwrap();
        let begin = RINGS[2].begin(NOW);
        let part = |seconds, value| Slot { seconds, ..slot(begin, value) };
        let mut file = HistoryFile::open(dir.path(), US, begin).unwrap().file;
        file.write(2, &part(30, 10.0)).unwrap();
        let mut file = HistoryFile::open(dir.path(), US, begin + 40).unwrap().file;
        // An open step is written again and again: the earlier part counts once.
        file.write(2, &part(5, 20.0)).unwrap();
        file.write(2, &part(10, 50.0)).unwrap();
        let query = Query { from: begin, to: begin + 60, points: 1, series: vec![0] };
        let line = read(dir.path(), &US, query::plan(&query, begin + 60), &[0]).unwrap().series["read_iops"].clone();
        assert_eq!(line.avg, [Some(20.0)]);
        assert_eq!((line.min.unwrap()[0], line.max.unwrap()[0]), (Some(10.0), Some(50.0)));
    }
}
