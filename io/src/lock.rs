//! Whole-file write locks on the file description that carries the I/O (OFD locks), and who holds one.
//!
//! Such a lock is released when the last reference to its file description goes: descriptors, mappings and requests
//! in flight (an io_uring request may outlive its process by seconds). Whoever gets the lock therefore knows that
//! nothing of the former holder can land any more. QEMU takes OFD locks on its images too, so each side stops the other.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

/// Who holds a lock, as far as /proc tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HolderDescription {
    /// A process that has the file open and locked.
    Process {
        /// Its number.
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

fn whole_file() -> libc::flock {
    // SAFETY: all zeros is a valid flock: from byte 0 to the end, wherever that will be; l_pid must be 0 for OFD locks.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock
}

/// Tries to lock the whole file, without waiting.
pub fn try_lock(file: &File) -> io::Result<LockAttempt> {
    if try_lock_silently(file)? { Ok(LockAttempt::Locked) } else { Ok(LockAttempt::HeldBy(find_holder(file))) }
}

fn try_lock_silently(file: &File) -> io::Result<bool> {
    loop {
        let lock = whole_file();
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

/// Waits for the lock at most so long. Tries again and again instead of F_OFD_SETLKW, which has no time limit.
pub fn await_lock(file: &File, timeout: Duration) -> io::Result<LockAttempt> {
    let deadline = Instant::now() + timeout;
    loop {
        if try_lock_silently(file)? {
            return Ok(LockAttempt::Locked);
        }
        if Instant::now() >= deadline {
            return Ok(LockAttempt::HeldBy(find_holder(file)));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Who holds a lock on any of the file, without trying to take one: also where the file was opened to read only.
pub fn holder(file: &File) -> io::Result<Option<HolderDescription>> {
    let mut asked = whole_file();
    // SAFETY: the argument is a valid flock that outlives the call, which fills it.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &mut asked) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((asked.l_type != libc::F_UNLCK as libc::c_short).then(|| find_holder(file)))
}

/// Looks through /proc for a process that has this file open with a lock on that very description.
pub fn find_holder(file: &File) -> HolderDescription {
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
            if details.lines().any(|line| line.starts_with("lock:")) {
                return describe(process);
            }
            if process != std::process::id() {
                with_file_open = Some(process);
            }
        }
    }
    with_file_open.map_or(HolderDescription::Unseen, describe)
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
