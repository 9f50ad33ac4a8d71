//! Write locks on the file description that carries the I/O (OFD locks), and who holds one.
//!
//! Such a lock is released when the last reference to its file description goes: descriptors, mappings and requests
//! in flight (an io_uring request may outlive its process by seconds). Whoever gets the lock therefore knows that
//! nothing of the former holder can land any more. QEMU takes OFD locks on its images too, so each side stops the other.
//!
//! A single node locks the whole file. An owner in a cluster locks the byte of its term, far behind any content, and
//! (unless in quarantine) everything before those bytes: so its successor can have a lock while its own is still there.
//! Both stop each other, and an older binary, which knows whole files only. The byte is locked before the transaction
//! that makes the owner, and shared, as two candidates may ask for one term. Whether a lock proves anything about a holder
//! on another host: [`scope`].
//!
//! There is no unlock: the end of the description is the only end that says that nothing is under way.

pub mod scope;

use forebay_core::types::Term;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};
use std::{fmt, io};

/// Who holds a lock, as far as /proc tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HolderDescription {
    /// A process that has the file open and locked.
    Process {
        /// Its number in this PID namespace.
        pid: u32,
        /// Its command line, or its name.
        command: String,
    },
    /// No process seen: it may have been killed with requests still under way, run in another PID namespace or on
    /// another host, or may not be looked at by this user.
    Unseen,
}

impl fmt::Display for HolderDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HolderDescription::Process { pid, command } => write!(f, "process {pid} ({command})"),
            HolderDescription::Unseen => f.write_str(
                "a holder that cannot be seen from here: requests of a killed process that are still under way, a \
                 process in another container or of another user, or another host",
            ),
        }
    }
}

/// What became of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockAttempt {
    /// The lock is ours until the file description goes.
    Locked,
    /// Somebody else has it.
    HeldBy(HolderDescription),
}

/// The bytes that a lock covers. They need not be in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRange {
    start: u64,
    /// 0: to the end, wherever that will be.
    length: u64,
    /// Several may have it, and none of them beside somebody who has it alone.
    shared: bool,
}

/// Where the bytes of terms begin: beyond the largest file, and half of what an offset can say.
const TERMS_START: u64 = 1 << 62;

impl LockRange {
    /// The whole file: what a single node locks, and what every older version does.
    pub const WHOLE: LockRange = LockRange { start: 0, length: 0, shared: false };
    /// All but the bytes of terms. QEMU's lock bytes are among these.
    pub const STRANGERS: LockRange = LockRange { start: 0, length: TERMS_START, shared: false };

    /// The byte of an owner, or of a candidate.
    pub fn of_term(term: Term) -> LockRange {
        LockRange { start: TERMS_START + u64::from(term.0), length: 1, shared: true }
    }

    /// The same byte, for somebody who keeps all others from it.
    pub fn alone(term: Term) -> LockRange {
        LockRange { shared: false, ..LockRange::of_term(term) }
    }

    /// The bytes of all terms before this one.
    pub fn before_term(term: Term) -> Option<LockRange> {
        (term.0 > 0).then(|| LockRange { start: TERMS_START, length: term.0.into(), shared: false })
    }

    fn to_flock(self) -> libc::flock {
        // SAFETY: all zeros is a valid flock; l_pid must be 0 for OFD locks.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = if self.shared { libc::F_RDLCK } else { libc::F_WRLCK } as libc::c_short;
        lock.l_whence = libc::SEEK_SET as libc::c_short;
        lock.l_start = self.start as libc::off_t;
        lock.l_len = self.length as libc::off_t;
        lock
    }

    /// Whether a lock that /proc shows from one byte to another, both included, lies in the way.
    fn overlaps(self, first: u64, last: u64) -> bool {
        let our_last = if self.length == 0 { u64::MAX } else { self.start + self.length - 1 };
        first <= our_last && self.start <= last
    }
}

/// Tries to lock the whole file, without waiting.
pub fn try_lock(file: &File) -> io::Result<LockAttempt> {
    try_lock_range(file, LockRange::WHOLE)
}

/// Tries to lock these bytes, without waiting.
pub fn try_lock_range(file: &File, range: LockRange) -> io::Result<LockAttempt> {
    if try_lock_silently(file, range)? {
        Ok(LockAttempt::Locked)
    } else {
        Ok(LockAttempt::HeldBy(find_holder(file, range)))
    }
}

fn try_lock_silently(file: &File, range: LockRange) -> io::Result<bool> {
    loop {
        let lock = range.to_flock();
        // SAFETY: the argument is a valid flock that the kernel only reads.
        let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &lock) };
        if result == 0 {
            return Ok(true);
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EACCES) => return Ok(false),
            Some(libc::EINTR) => {}
            Some(_) | None => return Err(error),
        }
    }
}

/// Gives these bytes up, as far as this description has them.
pub fn unlock(file: &File, range: LockRange) -> io::Result<()> {
    let mut lock = range.to_flock();
    lock.l_type = libc::F_UNLCK as libc::c_short;
    // SAFETY: the argument is a valid flock that the kernel only reads.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &lock) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Waits for the whole file's lock at most so long. Tries again and again instead of F_OFD_SETLKW, which has no time limit.
pub fn await_lock(file: &File, timeout: Duration) -> io::Result<LockAttempt> {
    let deadline = Instant::now() + timeout;
    loop {
        if try_lock_silently(file, LockRange::WHOLE)? {
            return Ok(LockAttempt::Locked);
        }
        if Instant::now() >= deadline {
            return Ok(LockAttempt::HeldBy(find_holder(file, LockRange::WHOLE)));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Who holds a lock on any of the file, without trying to take one: also where the file was opened to read only.
pub fn holder(file: &File) -> io::Result<Option<HolderDescription>> {
    holder_of(file, LockRange::WHOLE)
}

/// Who else holds a lock on any of these bytes, without trying to take one. What this very description holds is not seen.
pub fn holder_of(file: &File, range: LockRange) -> io::Result<Option<HolderDescription>> {
    // As one that everybody is in the way of.
    let mut asked = LockRange { shared: false, ..range }.to_flock();
    // SAFETY: the argument is a valid flock that outlives the call, which fills it.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &mut asked) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((asked.l_type != libc::F_UNLCK as libc::c_short).then(|| find_holder(file, range)))
}

/// Looks through /proc for a process that has this file open with a lock in the way on that very description.
pub fn find_holder(file: &File, range: LockRange) -> HolderDescription {
    let Ok(ours) = file.metadata() else { return HolderDescription::Unseen };
    let mut with_file_open = None;
    for process in numbered_entries("/proc") {
        for descriptor in numbered_entries(&format!("/proc/{process}/fd")) {
            if process == std::process::id() && descriptor == file.as_raw_fd() as u32 {
                continue;
            }
            let Ok(theirs) = std::fs::metadata(format!("/proc/{process}/fd/{descriptor}")) else { continue };
            if (theirs.dev(), theirs.ino()) != (ours.dev(), ours.ino()) {
                continue;
            }
            let details = std::fs::read_to_string(format!("/proc/{process}/fdinfo/{descriptor}")).unwrap_or_default();
            if details.lines().filter_map(locked_bytes).any(|(first, last)| range.overlaps(first, last)) {
                return describe(process);
            }
            // Of the byte of a term nothing can be said from that: several owners may have the file open.
            if process != std::process::id() && range == LockRange::WHOLE {
                with_file_open = Some(process);
            }
        }
    }
    with_file_open.map_or(HolderDescription::Unseen, describe)
}

/// First and last byte of a line of fdinfo like `lock: 1: OFDLCK ADVISORY WRITE -1 08:01:131 0 EOF`.
fn locked_bytes(line: &str) -> Option<(u64, u64)> {
    let mut words = line.strip_prefix("lock:")?.split_whitespace().rev();
    let (last, first) = (words.next()?, words.next()?);
    Some((first.parse().ok()?, if last == "EOF" { u64::MAX } else { last.parse().ok()? }))
}

fn numbered_entries(folder: &str) -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn describe(pid: u32) -> HolderDescription {
    let raw = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<_> = raw.split(|&b| b == 0).filter(|w| !w.is_empty()).map(String::from_utf8_lossy).collect();
    let mut command = words.join(" ");
    if command.is_empty() {
        command = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned();
    }
    if let Some((cut, _)) = command.char_indices().nth(120) {
        command.truncate(cut);
        command.push_str("...");
    }
    HolderDescription::Process { pid, command }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_locks_are_read_as_the_kernel_prints_them() {
        assert_eq!(locked_bytes("lock:\t1: OFDLCK ADVISORY  WRITE -1 fe:00:131 0 EOF"), Some((0, u64::MAX)));
        let term = "lock:\t2: OFDLCK ADVISORY  WRITE -1 fe:00:131 4611686018427387911 4611686018427387911";
        let (first, last) = locked_bytes(term).unwrap();
        assert_eq!((first, last), ((1 << 62) + 7, (1 << 62) + 7));
        assert_eq!(locked_bytes("pos:\t0"), None);
        for (range, expected) in [
            (LockRange::WHOLE, true),
            (LockRange::STRANGERS, false),
            (LockRange::of_term(Term(7)), true),
            (LockRange::of_term(Term(6)), false),
            (LockRange::of_term(Term(u32::MAX)), false),
        ] {
            assert_eq!(range.overlaps(first, last), expected, "{range:?}");
        }
        assert!(LockRange::STRANGERS.overlaps(0, u64::MAX) && LockRange::STRANGERS.overlaps((1 << 62) - 1, 1 << 62));
    }

    #[test]
    fn a_term_has_a_lock_of_its_own_and_everybody_sees_who_holds_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let open = || File::options().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
        let (former, successor, older) = (open(), open(), open());
        let held_here = |attempt: LockAttempt| match attempt {
            LockAttempt::HeldBy(HolderDescription::Process { pid, .. }) => assert_eq!(pid, std::process::id()),
            other => panic!("{other:?}"),
        };
        assert_eq!(try_lock_range(&former, LockRange::of_term(Term(7))).unwrap(), LockAttempt::Locked);
        assert_eq!(try_lock_range(&former, LockRange::STRANGERS).unwrap(), LockAttempt::Locked);
        // Its own lock does not stand in its own way.
        assert_eq!(holder_of(&former, LockRange::of_term(Term(7))).unwrap(), None);
        assert_eq!(try_lock_range(&successor, LockRange::of_term(Term(8))).unwrap(), LockAttempt::Locked);
        let candidate = open();
        assert_eq!(try_lock_range(&candidate, LockRange::of_term(Term(7))).unwrap(), LockAttempt::Locked, "shared");
        held_here(try_lock_range(&successor, LockRange::STRANGERS).unwrap());
        assert!(holder_of(&successor, LockRange::of_term(Term(7))).unwrap().is_some());
        assert_eq!(holder_of(&successor, LockRange::of_term(Term(9))).unwrap(), None);
        drop(former);
        assert!(holder_of(&successor, LockRange::of_term(Term(7))).unwrap().is_some(), "the other candidate has it");
        drop(candidate);
        assert_eq!(holder_of(&successor, LockRange::of_term(Term(7))).unwrap(), None);
        // The byte of a term alone, as in quarantine, stops an older binary, too.
        held_here(try_lock(&older).unwrap());
        assert_eq!(try_lock_range(&successor, LockRange::STRANGERS).unwrap(), LockAttempt::Locked);
        drop(successor);
        assert_eq!(try_lock(&older).unwrap(), LockAttempt::Locked);
        let next = open();
        held_here(try_lock_range(&next, LockRange::of_term(Term(9))).unwrap());
    }

    #[test]
    fn a_second_description_is_refused_until_the_first_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let first = File::create(&path).unwrap();
        let second = File::options().read(true).write(true).open(&path).unwrap();
        assert_eq!(try_lock(&first).unwrap(), LockAttempt::Locked);
        match try_lock(&second).unwrap() {
            LockAttempt::HeldBy(HolderDescription::Process { pid, .. }) => assert_eq!(pid, std::process::id()),
            other => panic!("{other:?}"),
        }
        let reader = File::open(&path).unwrap();
        assert!(matches!(holder(&reader).unwrap(), Some(HolderDescription::Process { .. })));
        assert_eq!(holder(&first).unwrap(), None, "one's own lock is in nobody's way");
        let releaser = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            drop(first);
        });
        let start = Instant::now();
        assert_eq!(await_lock(&second, Duration::from_secs(10)).unwrap(), LockAttempt::Locked);
        assert!(start.elapsed() >= Duration::from_millis(50));
        releaser.join().unwrap();
    }

    #[test]
    fn a_mapping_alone_keeps_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let first = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        first.set_len(4096).unwrap();
        let second = File::options().read(true).write(true).open(&path).unwrap();
        let mapping = crate::memory::Mapping::shared(&first, 4096).unwrap();
        assert_eq!(try_lock(&first).unwrap(), LockAttempt::Locked);
        drop(first);
        let refused = await_lock(&second, Duration::from_millis(50)).unwrap();
        // close() of any descriptor of the same description gives up OFD locks only when it is the last reference.
        assert_eq!(refused, LockAttempt::HeldBy(HolderDescription::Unseen));
        drop(mapping);
        assert_eq!(await_lock(&second, Duration::from_secs(5)).unwrap(), LockAttempt::Locked);
    }
}
