//! Whether an owner still has what lets it write to its backing: the lock of its file description, where a file server may take that
//! from a holder that lives, and its registration with a device that is reserved.
//!
//! Who has a lock cannot ask for it: `F_OFD_GETLK` tells of others' locks only, a client of NFS answers it from what it remembers, and
//! to lock once more would hide the loss, and that somebody else had the lock in between. What tells is a read by the very description:
//! Linux fails all I/O of a description whose lock the server has taken back (EIO), and not that of another one on the same file.
//!
//! Invariant: a look keeps no description, and so no lock, alive longer than it takes. Left to others: what follows from a loss
//! (`forebay_core::ownership`, T9).

use super::Backing;
use crate::fence::{ReservableDevice, ReservationKey};
use crate::file::{Access, DeviceFile};
use crate::memory::AlignedBuffer;
use forebay_core::fence::LockReach;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Arc, Weak};

/// What a look has shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Looked {
    /// The lock is still ours.
    Ours,
    /// It is ours no more; in words why.
    Lost(String),
    /// The opening has ended: there is nothing to look at any more.
    Ended,
}

/// Looks after the lock of one opening of a backing.
#[derive(Debug)]
pub struct LockLook {
    file: Weak<DeviceFile>,
    by_reading: bool,
    registered_as: Option<ReservationKey>,
}

impl Backing {
    /// For an owner, registered with the device under that key where it is. None: nobody can take the lock from a holder that
    /// lives, or nothing tells that somebody has.
    pub fn lock_look(&self, registered_as: Option<ReservationKey>) -> io::Result<Option<LockLook>> {
        let Some(file) = self.file() else { return Ok(None) };
        let by_reading =
            self.lock_reach()?.about == LockReach::EveryHost && matches!(file.access(), Access::Direct { .. });
        let look = LockLook { file: Arc::downgrade(file), by_reading, registered_as };
        Ok((by_reading || registered_as.is_some()).then_some(look))
    }
}

impl LockLook {
    /// Takes as long as the server or the device does. An error says nothing of the lock.
    pub fn look(&self) -> io::Result<Looked> {
        let Some(file) = self.file.upgrade() else { return Ok(Looked::Ended) };
        if let Some(key) = self.registered_as
            && !ReservableDevice::of_open(&file)?.is_registered(key).map_err(io::Error::other)?
        {
            let path = file.path().display();
            return Ok(Looked::Lost(format!("this host is registered with {path} no more: it was expelled")));
        }
        if self.by_reading { look_by_reading(&file) } else { Ok(Looked::Ours) }
    }
}

/// A read that fails by the own description, and by no other one.
fn look_by_reading(file: &DeviceFile) -> io::Result<Looked> {
    let own = || read_first(file);
    let Err(error) = own() else { return Ok(Looked::Ours) };
    // The same file, whatever its name leads to by now; without the lock.
    let again = format!("/proc/self/fd/{}", file.raw());
    let direct = if matches!(file.access(), Access::Direct { .. }) { libc::O_DIRECT } else { 0 };
    let other = File::options().read(true).custom_flags(direct).open(again)?;
    read_of(other.as_raw_fd(), file.align())?;
    // Not an error that came and went.
    if own().is_ok() {
        return Ok(Looked::Ours);
    }
    let path = file.path().display();
    Ok(Looked::Lost(format!("the file server has taken back the lock on {path} ({error})")))
}

fn read_first(file: &DeviceFile) -> io::Result<()> {
    read_of(file.raw(), file.align())
}

/// Reads the first bytes of a file.
pub(super) fn read_of(descriptor: i32, align: u32) -> io::Result<()> {
    let mut buffer = AlignedBuffer::new(align as usize);
    buffer.set_len(align as usize);
    loop {
        // SAFETY: the pointer and the length are those of the buffer, which is borrowed exclusively.
        let result = unsafe { libc::pread64(descriptor, buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        match io::Error::last_os_error() {
            _ if result >= 0 => return Ok(()),
            error if error.kind() == io::ErrorKind::Interrupted => {}
            error => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look_of(file: &Arc<DeviceFile>) -> LockLook {
        LockLook { file: Arc::downgrade(file), by_reading: true, registered_as: None }
    }

    #[test]
    fn a_description_that_reads_no_more_while_another_does_has_lost_its_lock() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk.img");
        std::fs::write(&path, [7; 8192]).unwrap();
        let whole = Arc::new(DeviceFile::open(&path, false).unwrap());
        assert_eq!(look_of(&whole).look().unwrap(), Looked::Ours);
        // As after the loss of a lock on NFS: reads fail by this description, and by no other.
        let write_only = File::options().write(true).open(&path).unwrap();
        let refused = Arc::new(DeviceFile::buffered(write_only, &path, "a test").unwrap());
        let look = look_of(&refused);
        assert!(matches!(look.look().unwrap(), Looked::Lost(why) if why.contains("disk.img")));
        // It keeps no description alive, and with that no lock.
        drop(refused);
        assert_eq!(look.look().unwrap(), Looked::Ended);
    }

    #[test]
    fn a_file_that_nobody_can_read_says_nothing_of_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        // A folder is opened, and never read like a file.
        let place = File::open(folder.path()).unwrap();
        let unreadable = Arc::new(DeviceFile::buffered(place, folder.path(), "a test").unwrap());
        assert!(look_of(&unreadable).look().is_err());
    }

    #[test]
    fn a_lock_that_nobody_can_take_away_is_not_looked_after() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk.img");
        std::fs::write(&path, [7; 8192]).unwrap();
        let backing = Backing::open(path.to_str().unwrap(), Default::default()).unwrap();
        assert_ne!(backing.lock_reach().unwrap().about, LockReach::EveryHost, "this test needs a local file system");
        assert!(backing.lock_look(None).unwrap().is_none());
    }
}
