//! What was changed on this host and is to be taken back: one file, each line synced before what it tells is done.
//!
//! A line is a whole entry after its checksum; the last line of an entry's number holds. A torn last line is one whose change
//! was not begun, and is cut off. One process at a time has it open.

use crate::findings::Write as Setting;
use anyhow::{Context, Result, bail};
use forebay_api::calendar;
use forebay_core::format::crc32c;
use forebay_io::folder::Folder;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};

/// Bytes that are read of it: thousands of changes.
pub const FILE_BYTES_MAX: u64 = 16 << 20;
/// From here on it gives way to a new one with what is open, where that is less than half of it.
const FILE_BYTES_ENOUGH: u64 = 1 << 20;

/// Its name in the doctor's folder.
pub const NAME: &str = "journal";
/// The one before it.
const FORMER: &str = "journal.1";
/// Rights of it.
const MODE: u32 = 0o600;

/// How far a change of one file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It may have been written.
    Intended,
    /// It was written, and the kernel says so.
    Applied,
    /// It was measured, and stays.
    Kept,
    /// It is as it was before.
    Reverted,
    /// A reboot, or the device's removal, has taken it.
    Gone,
}

impl State {
    /// Something is to be taken back.
    pub fn is_open(self) -> bool {
        matches!(self, State::Intended | State::Applied | State::Kept)
    }
}

/// A change of one file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// Greater than that of every entry before it.
    pub number: u64,
    /// The number of the first entry of those that were made for one finding at one time.
    pub change: u64,
    /// Id of the finding that it was made for.
    pub finding: String,
    /// The file, as a path of the host.
    pub path: String,
    /// What it held, to the byte.
    pub old: String,
    /// What was written to the file.
    pub new: String,
    /// What is written to have the old state again.
    pub restore: Vec<Setting>,
    /// The boot that it was made in: such settings end with it.
    pub boot_id: String,
    /// When it was made, RFC 3339.
    pub time: String,
    /// It goes back by itself unless a person confirms it.
    #[serde(default)]
    pub unless_confirmed: bool,
    /// It is applied again after a reboot, while it is kept.
    #[serde(default)]
    pub persists: bool,
    /// Of one that persists: which thing it is a setting of, to be told from others after a reboot.
    #[serde(default)]
    pub identity: String,
    /// How far the change is.
    pub state: State,
}

/// The journal, open and locked.
pub struct Journal {
    folder: Folder,
    file: File,
    /// Bytes of it that are whole lines; what a write left beyond them is cut off before the next.
    whole: u64,
    entries: BTreeMap<u64, Entry>,
    /// Lines in the middle of it that hold no entry any more.
    damaged: usize,
    _lock: File,
}

impl Journal {
    /// Opens or makes it, and waits for whoever has it open.
    pub fn open(folder: Folder) -> Result<Journal> {
        let shown = folder.path().to_owned();
        let with = || format!("open the journal in {}", shown.display());
        let lock = folder.open_to_append("lock", MODE).with_context(with)?;
        lock.lock().with_context(with)?;
        // Whoever began it anew was ended before the new one had the name.
        if folder.are_one(NAME, FORMER) {
            folder.remove(FORMER).with_context(with)?;
        }
        let mut file = folder.open_to_append(NAME, MODE).with_context(with)?;
        // The name itself is to outlive a power cut.
        folder.sync().with_context(with)?;
        if file.metadata().with_context(with)?.len() > FILE_BYTES_MAX {
            bail!("{}: longer than {FILE_BYTES_MAX} bytes, which no journal of the doctor is", shown.display());
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).with_context(with)?;
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
        if whole < bytes.len() {
            file.set_len(whole as u64).and_then(|()| file.sync_all()).with_context(with)?;
        }
        let (entries, damaged) = entries_of(&bytes[..whole]);
        let mut journal = Journal { folder, file, whole: whole as u64, entries, damaged, _lock: lock };
        let open: String = journal.open_entries().map(encode_line).collect();
        if whole as u64 > FILE_BYTES_ENOUGH && open.len() < whole / 2 {
            journal.begin_anew(&open).with_context(with)?;
        }
        Ok(journal)
    }

    /// A new file with what is open of the old one, which is kept beside. Whatever ends this in between, one of them is there whole;
    /// where the new one cannot be made, as on a full disk, the old one still serves.
    fn begin_anew(&mut self, open: &str) -> std::io::Result<()> {
        const NEW: &str = "journal.new";
        let folder = &self.folder;
        let make = || {
            folder.remove(NEW)?;
            folder.remove(FORMER)?;
            let mut file = folder.open_to_append(NEW, MODE)?;
            file.write_all(open.as_bytes()).and_then(|()| file.sync_all())?;
            folder.link(NAME, FORMER)?;
            folder.rename(NEW, NAME)?;
            std::io::Result::Ok(file)
        };
        let Ok(file) = make() else { return Ok(()) };
        (self.file, self.whole) = (file, open.len() as u64);
        // Without it a power cut could have the old one back, and what is written from here on would be lost.
        self.folder.sync()
    }

    /// How many lines are damaged: what they told cannot be taken back by them.
    pub fn damaged(&self) -> usize {
        self.damaged
    }

    /// The number of the next entry.
    pub fn next(&self) -> u64 {
        self.entries.last_key_value().map_or(1, |(last, _)| last + 1)
    }

    /// What is to be taken back, oldest first.
    pub fn open_entries(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        self.entries.values().filter(|entry| entry.state.is_open())
    }

    /// Entries of one change, oldest first.
    pub fn of_change(&self, change: u64) -> impl DoubleEndedIterator<Item = &Entry> {
        self.entries.values().filter(move |entry| entry.change == change)
    }

    /// Takes in an entry, or its new state, and has it on the medium.
    pub fn record(&mut self, entry: Entry) -> Result<()> {
        let line = encode_line(&entry);
        let written =
            self.cut().and_then(|()| self.file.write_all(line.as_bytes())).and_then(|()| self.file.sync_data());
        if written.is_err() {
            // A full disk took a part of the line, which would swallow the next one. Where that fails, the next write begins with it.
            let _ = self.cut();
        }
        written.with_context(|| {
            format!(
                "write to the journal in {}; nothing was changed that is not in it, so make room there and try again",
                self.folder.path().display()
            )
        })?;
        self.whole += line.len() as u64;
        self.entries.insert(entry.number, entry);
        Ok(())
    }

    /// Cuts off what a failed write has left.
    fn cut(&self) -> std::io::Result<()> {
        match self.file.metadata()?.len() == self.whole {
            true => Ok(()),
            false => self.file.set_len(self.whole).and_then(|()| self.file.sync_data()),
        }
    }

    /// The same entry, further on.
    pub fn advance(&mut self, number: u64, state: State) -> Result<()> {
        let mut entry = self.entries.get(&number).expect("it was recorded before").clone();
        entry.state = state;
        self.record(entry)
    }
}

/// The entries in a journal's bytes, by number, and how many lines hold none.
pub fn entries_of(bytes: &[u8]) -> (BTreeMap<u64, Entry>, usize) {
    let lines = bytes.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    let decoded: Vec<Option<Entry>> = lines.map(decode_line).collect();
    let damaged = decoded.iter().filter(|entry| entry.is_none()).count();
    (decoded.into_iter().flatten().map(|entry| (entry.number, entry)).collect(), damaged)
}

#[cfg(test)]
impl Journal {
    /// That of a folder, by its path.
    pub fn at(folder: &std::path::Path) -> Result<Journal> {
        Journal::open(Folder::make_private(folder, 0o755)?)
    }
}

#[cfg(test)]
impl Entry {
    /// One that changes 1 to 0, and has only begun.
    pub fn of_test(number: u64, path: &str) -> Entry {
        Entry {
            number,
            change: number,
            finding: "word/thing".to_owned(),
            path: path.to_owned(),
            old: "1\n".to_owned(),
            new: "0".to_owned(),
            restore: Vec::new(),
            boot_id: "boot".to_owned(),
            time: now(),
            unless_confirmed: false,
            persists: false,
            identity: String::new(),
            state: State::Intended,
        }
    }
}

/// When, as an entry says it.
pub fn now() -> String {
    calendar::show_ms(calendar::now_ms())
}

fn encode_line(entry: &Entry) -> String {
    let text = serde_json::to_string(entry).expect("an entry is plain values");
    format!("{:08x} {text}\n", crc32c(text.as_bytes()))
}

fn decode_line(line: &[u8]) -> Option<Entry> {
    let (sum, text) = line.split_at_checked(8)?;
    let text = text.strip_prefix(b" ")?;
    let sum = u32::from_str_radix(std::str::from_utf8(sum).ok()?, 16).ok()?;
    (crc32c(text) == sum).then(|| serde_json::from_slice(text).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_tests::harness::skip;

    fn entry(number: u64) -> Entry {
        Entry::of_test(number, &format!("/proc/sys/vm/{number}"))
    }

    #[test]
    fn the_last_line_of_an_entry_holds_and_numbers_go_on() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::at(&folder.path().join("a/b")).unwrap();
        journal.record(entry(1)).unwrap();
        journal.record(entry(2)).unwrap();
        journal.advance(1, State::Kept).unwrap();
        journal.advance(2, State::Reverted).unwrap();
        drop(journal);
        let journal = Journal::at(&folder.path().join("a/b")).unwrap();
        let open: Vec<(u64, State)> = journal.open_entries().map(|entry| (entry.number, entry.state)).collect();
        assert_eq!(open, [(1, State::Kept)]);
        assert_eq!((journal.next(), journal.damaged()), (3, 0));
    }

    #[test]
    fn a_torn_last_line_was_never_acted_upon_and_a_damaged_one_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::at(folder.path()).unwrap();
        for number in 1..=3 {
            journal.record(entry(number)).unwrap();
        }
        drop(journal);
        let path = folder.path().join("journal");
        let mut bytes = std::fs::read(&path).unwrap();
        bytes.truncate(bytes.len() - 7);
        bytes[20] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        let mut journal = Journal::at(folder.path()).unwrap();
        assert_eq!(journal.open_entries().map(|entry| entry.number).collect::<Vec<_>>(), [2]);
        assert_eq!(journal.damaged(), 1);
        journal.record(entry(3)).unwrap();
        drop(journal);
        assert_eq!(Journal::at(folder.path()).unwrap().open_entries().count(), 2, "the cut line spoils no other");
    }

    /// A file system of this many bytes at the folder, seen by this thread alone, which ends with it. Why not, where it cannot be.
    fn small(folder: &std::path::Path, bytes: u64) -> std::io::Result<()> {
        let text = |text: &str| std::ffi::CString::new(text).expect("no zero in it");
        let (at, root) = (text(folder.to_str().expect("a plain path")), text("/"));
        let (tmpfs, size) = (text("tmpfs"), text(&format!("size={bytes},mode=700")));
        let done = |result: i32| if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) };
        // SAFETY: it takes a number, and is about this thread alone.
        done(unsafe { libc::unshare(libc::CLONE_NEWNS) })?;
        let private = libc::MS_REC | libc::MS_PRIVATE;
        // SAFETY: the texts outlive the call, and the others may be null for a change of how mounts spread.
        done(unsafe { libc::mount(std::ptr::null(), root.as_ptr(), std::ptr::null(), private, std::ptr::null()) })?;
        // SAFETY: all texts outlive the call.
        done(unsafe { libc::mount(tmpfs.as_ptr(), at.as_ptr(), tmpfs.as_ptr(), 0, size.as_ptr().cast()) })
    }

    #[test]
    fn what_a_full_disk_took_a_part_of_spoils_no_later_line() {
        let folder = tempfile::tempdir().unwrap();
        if let Err(e) = small(folder.path(), 64 << 10) {
            skip(&format!("a journal on a full disk: a file system of its own: {e}"));
            return;
        }
        let mut journal = Journal::at(folder.path()).unwrap();
        let filler = folder.path().join("filler");
        std::fs::write(&filler, vec![1; 48 << 10]).unwrap();
        let mut number = 0;
        let error = loop {
            number += 1;
            match journal.record(entry(number)) {
                Ok(()) => assert!(number < 1000, "the disk never was full"),
                Err(error) => break error,
            }
        };
        let cause = error.root_cause().downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error);
        assert_eq!(cause, Some(libc::ENOSPC), "{error:#}");
        assert!(error.to_string().contains("make room there"), "{error:#}");
        let bytes = std::fs::read(folder.path().join("journal")).unwrap();
        assert_eq!(bytes.last(), Some(&b'\n'), "a part of the line is there");
        assert_eq!(journal.next(), number, "what is not in it does not count");
        std::fs::remove_file(filler).unwrap();
        journal.record(entry(number)).unwrap();
        drop(journal);
        let journal = Journal::at(folder.path()).unwrap();
        assert_eq!((journal.open_entries().count() as u64, journal.damaged()), (number, 0));
    }

    #[test]
    fn what_is_open_for_many_boots_goes_over_into_a_new_journal() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::at(folder.path()).unwrap();
        journal.record(entry(1)).unwrap();
        let mut long = entry(2);
        long.old = "x".repeat(1 << 20);
        journal.record(long).unwrap();
        journal.advance(2, State::Gone).unwrap();
        journal.advance(1, State::Kept).unwrap();
        drop(journal);
        let mut journal = Journal::at(folder.path()).unwrap();
        assert!(folder.path().join("journal.1").metadata().unwrap().len() > FILE_BYTES_ENOUGH);
        assert_eq!(journal.next(), 3, "a number is never given twice in one go");
        journal.record(entry(3)).unwrap();
        drop(journal);
        assert!(folder.path().join("journal").metadata().unwrap().len() < 4096);
        let journal = Journal::at(folder.path()).unwrap();
        let open: Vec<(u64, State)> = journal.open_entries().map(|entry| (entry.number, entry.state)).collect();
        assert_eq!(open, [(1, State::Kept), (3, State::Intended)]);
        assert_eq!(journal.damaged(), 0);
    }

    #[test]
    fn ended_before_the_new_one_has_the_name_the_old_one_serves() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::at(folder.path()).unwrap();
        journal.record(entry(1)).unwrap();
        drop(journal);
        std::fs::hard_link(folder.path().join("journal"), folder.path().join("journal.1")).unwrap();
        let journal = Journal::at(folder.path()).unwrap();
        assert_eq!(journal.open_entries().count(), 1);
        drop(journal);
        // A second name elsewhere is somebody else's doing.
        std::fs::hard_link(folder.path().join("journal"), folder.path().join("other")).unwrap();
        let error = format!("{:#}", Journal::at(folder.path()).err().unwrap());
        assert!(error.contains("has 2 names"), "{error}");
    }

    #[test]
    fn a_long_journal_gives_way_only_when_most_of_it_is_done() {
        let folder = tempfile::tempdir().unwrap();
        let mut long = entry(1);
        long.old = "x".repeat(1 << 20);
        let mut journal = Journal::at(folder.path()).unwrap();
        journal.record(long).unwrap();
        drop(journal);
        let mut journal = Journal::at(folder.path()).unwrap();
        assert!(!folder.path().join("journal.1").exists());
        journal.advance(1, State::Reverted).unwrap();
        drop(journal);
        let journal = Journal::at(folder.path()).unwrap();
        assert!(folder.path().join("journal.1").exists());
        assert_eq!(journal.next(), 2, "a number is never given twice in one go");
    }
}
