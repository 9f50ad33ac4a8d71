//! A file whose opening is of no use any more, while its path leads to a file that can be used.
//!
//! A file server that was started anew without giving locks back, or that has expired its client, has taken the lock from an
//! opening for good: Linux fails all I/O by it, and never tells its holder. A stale handle is the same. Whoever opens the file
//! anew goes on, by the rules of a restart: nothing is under way by the former opening, the file is the same, its lock is taken,
//! and nothing counts that was not synced before.
//!
//! Left to others: whether it is the same file (`forebay-node`), and that of what was not synced nothing counts
//! ([`crate::VolumeIo::return_to_backing`]).

use super::lock_look::read_of;
use super::{Backing, Device, Held};
use crate::file::{Access, DeviceFile};
use crate::folder::{FileKind, Held as HeldFile};
use crate::lock::{LockRange, unlock};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

/// Of these first bytes of a file this host forgets what it remembers: whole pages, of any size.
const FORGOTTEN_BYTES: i64 = 1 << 20;

/// What became of an opening whose I/O fails.
#[derive(Debug)]
pub enum Opening {
    /// Its first block can be read by it: it is not the opening that fails.
    Works,
    /// It cannot be read by it, and it can by a new one.
    Dead(io::Error),
    /// It cannot be read by it, nor by a new one.
    AllFail {
        /// Why not by the opening.
        own: io::Error,
        /// Why not by a new one at the same path.
        anew: io::Error,
    },
}

/// Looks by reading the first block of the file. Takes as long as its server or device does.
pub fn look_at(file: &DeviceFile) -> Opening {
    let Err(own) = read_first(file.raw(), file) else { return Opening::Works };
    if let Err(anew) = open_to_read(file).and_then(|other| read_first(other.as_raw_fd(), file)) {
        return Opening::AllFail { own, anew };
    }
    // Not an error that came and went.
    match read_first(file.raw(), file) {
        Ok(()) => Opening::Works,
        Err(own) => Opening::Dead(own),
    }
}

fn open_to_read(file: &DeviceFile) -> io::Result<File> {
    let direct = if matches!(file.access(), Access::Direct { .. }) { libc::O_DIRECT } else { 0 };
    let held = HeldFile::of(file.path())?;
    // Whoever opens a pipe waits.
    if held.kind()? != file.kind() {
        return Err(io::Error::other("it is not what it was when it was opened"));
    }
    held.open(false, direct)
}

fn read_first(descriptor: RawFd, file: &DeviceFile) -> io::Result<()> {
    if matches!(file.access(), Access::Buffered { .. }) && file.kind() == FileKind::Regular {
        // What this host remembers says nothing. Each write was synced, so nothing is lost by it.
        // SAFETY: a call with numbers only.
        unsafe { libc::posix_fadvise(descriptor, 0, FORGOTTEN_BYTES, libc::POSIX_FADV_DONTNEED) };
    }
    read_of(descriptor, file.align())
}

impl Backing {
    /// Gives up the lock of the whole file, for another opening to take it. Nothing may be under way by this one, and nothing is
    /// written by it any more. That the server does not hear of it is no error: what counts is who has the lock next.
    pub fn give_up_lock(&mut self) {
        assert!(!matches!(self.held, Held::Term { .. }), "the lock of a term ends with its opening");
        if let Device::File(file) = &self.device {
            let _ = unlock(file.file(), LockRange::WHOLE);
        }
        self.held = Held::Nothing;
    }

    /// Goes on with another opening of the same file, and its lock; wrappers and counters stay. The former file comes back.
    pub(crate) fn go_on_with(&mut self, anew: Backing) -> Option<Arc<DeviceFile>> {
        assert!(anew.locked(), "a backing is written to only under its lock");
        self.held = anew.held;
        match std::mem::replace(&mut self.device, anew.device) {
            Device::File(former) => Some(former),
            Device::Nbd { .. } => unreachable!("a connection is made anew by its client"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LockAttempt;

    fn image(folder: &tempfile::TempDir) -> std::path::PathBuf {
        let path = folder.path().join("disk.img");
        std::fs::write(&path, [7; 8192]).unwrap();
        path
    }

    #[test]
    fn an_opening_is_dead_when_a_new_one_reads_what_it_cannot() {
        let folder = tempfile::tempdir().unwrap();
        let path = image(&folder);
        let whole = DeviceFile::open(&path, false).unwrap();
        assert!(matches!(look_at(&whole), Opening::Works));
        // As after the loss of a lock on NFS: reads fail by this opening, and by no other one.
        let write_only = File::options().write(true).open(&path).unwrap();
        let dead = DeviceFile::buffered(write_only, &path, "a test").unwrap();
        assert!(matches!(look_at(&dead), Opening::Dead(error) if error.raw_os_error() == Some(libc::EBADF)));
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(look_at(&dead), Opening::AllFail { .. }));
        // A pipe in its place is not opened: who does that waits for its other end.
        let name = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
        // SAFETY: a valid path that ends with zero.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        assert!(matches!(look_at(&dead), Opening::AllFail { .. }));
    }

    #[test]
    fn a_lock_goes_from_one_opening_to_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Backing::open(image(&folder).to_str().unwrap(), Default::default()).unwrap();
        let (mut former, mut anew) = (open(), open());
        assert_eq!(former.try_lock().unwrap(), LockAttempt::Locked);
        assert!(matches!(anew.try_lock().unwrap(), LockAttempt::HeldBy(_)));
        former.give_up_lock();
        assert!(!former.locked());
        assert_eq!(anew.try_lock().unwrap(), LockAttempt::Locked);
        assert!(former.go_on_with(anew).is_some() && former.locked());
    }
}
