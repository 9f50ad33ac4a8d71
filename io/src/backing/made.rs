//! The file that was made for a new volume's image, and how it is taken away again where the volume does not come to be.
//!
//! Invariants:
//! - It goes only under its lock, and only where it is the very file that was made and nobody has written to it since, as far as its size,
//!   its room and its time of writing tell. What is not certain stays.
//! - Whoever else has opened it meanwhile, and has its lock afterwards, finds out that its path does not lead to it any more
//!   ([`Backing::require_its_path`]).

use super::{Backing, OpenError, WHAT};
use crate::file::{Whereabouts, whereabouts};
use crate::file_error::FileError;
use crate::folder::{Folder, Held};
use crate::lock::{LockAttempt, try_lock};
use forebay_core::types::{SECTOR_BYTES, VOLUME_BYTES_MAX};
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// See the module's text.
#[derive(Debug)]
pub struct MadeImage {
    held: Held,
    was: State,
}

/// What a write would change: bytes, the room that they take in units of 512 bytes, and when they were last written to, in seconds and
/// nanoseconds. That time alone moves in steps of some milliseconds.
#[derive(Debug, PartialEq, Eq)]
struct State {
    bytes: u64,
    room: u64,
    written: (i64, i64),
}

impl State {
    fn of(found: &Metadata) -> State {
        State { bytes: found.len(), room: found.blocks(), written: (found.mtime(), found.mtime_nsec()) }
    }
}

impl Backing {
    /// An error where its path does not lead to what is open. To be asked under its lock: whoever had it before may have taken away a file
    /// that he had made, and writes to one without a name would go with this process.
    pub fn require_its_path(&self) -> io::Result<()> {
        let Some(file) = self.file() else { return Ok(()) };
        match whereabouts(file)? {
            Whereabouts::InPlace => Ok(()),
            Whereabouts::Deleted { .. } | Whereabouts::Elsewhere { .. } => Err(io::Error::other(
                "it was removed or moved while it was opened; try again with what is at its path now",
            )),
        }
    }
}

impl MadeImage {
    /// The path at which it was made.
    pub fn path(&self) -> &Path {
        self.held.path()
    }

    /// Removes it durably. `file`: an opening of it for writing, which locks it unless somebody else has it locked. The words say why it
    /// stays; none: it is gone.
    pub fn take_back(&self, file: &File) -> io::Result<Option<String>> {
        if !self.held.is(file)? || !self.held.has_its_name()? {
            return Ok(Some("another file is at its place by now".to_owned()));
        }
        if let LockAttempt::HeldBy(holder) = try_lock(file)? {
            return Ok(Some(format!("it is in use by {holder}")));
        }
        // By an opening of its own: what a file server knows of it is asked then.
        if State::of(&self.held.open(false, 0)?.metadata()?) != self.was {
            return Ok(Some("somebody has written to it".to_owned()));
        }
        match self.held.remove_own()? {
            true => Ok(None),
            false => Ok(Some("another file is at its place by now".to_owned())),
        }
    }

    /// The same after a failure to open it, of whom nothing else is told.
    pub(super) fn take_back_after<T>(self, failure: OpenError) -> Result<T, OpenError> {
        // What stays is an image that holds nothing, and whoever asks again finds it.
        let _ = self.held.open(true, 0).and_then(|file| self.take_back(&file));
        Err(failure)
    }
}

/// Makes a file that has so many bytes and takes no room; nothing of it stays where that fails.
pub(super) fn create_sparse(folder: &Folder, name: &OsStr, path: &Path, size: u64) -> Result<MadeImage, OpenError> {
    create_sparse_by(folder, name, path, size, || folder.hold(name, path))
}

fn create_sparse_by(
    folder: &Folder,
    name: &OsStr,
    path: &Path,
    size: u64,
    hold: impl FnOnce() -> io::Result<Held>,
) -> Result<MadeImage, OpenError> {
    if !(SECTOR_BYTES..=VOLUME_BYTES_MAX).contains(&size) || !size.is_multiple_of(SECTOR_BYTES) {
        let reason = format!("it cannot be made with {size} bytes: a size is a multiple of 512 and at most 64 TiB");
        return Err(OpenError::File(FileError::unusable(WHAT, path, reason)));
    }
    let failed = |error| OpenError::File(FileError::failed(WHAT, path, "create", error));
    let file = folder.make_file(name, 0o600).map_err(failed)?;
    let finish = || {
        let held = hold()?;
        if !held.is(&file)? {
            return Err(io::Error::other("somebody has put another file in its place"));
        }
        file.set_len(size)?;
        // At once: what somebody writes meanwhile is his.
        let was = State::of(&file.metadata()?);
        file.sync_all()?;
        folder.sync()?;
        Ok(MadeImage { held, was })
    };
    finish().map_err(|error| {
        // What somebody else has put there, or uses, stays. No descriptor is needed for it, of which there may be none left.
        if matches!(try_lock(&file), Ok(LockAttempt::Locked)) {
            let _ = folder.remove_if_is(name, &file);
        }
        failed(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(folder: &Path) -> (MadeImage, std::path::PathBuf) {
        let path = folder.join("new.img");
        let made = create_sparse(&Folder::open(folder).unwrap(), OsStr::new("new.img"), &path, 1 << 20).unwrap();
        (made, path)
    }

    fn opened(path: &Path) -> File {
        File::options().read(true).write(true).open(path).unwrap()
    }

    #[test]
    fn only_what_was_made_and_is_as_it_was_made_goes_and_only_under_its_lock() {
        let folder = tempfile::tempdir().unwrap();
        let (untouched, path) = made(folder.path());
        let ours = opened(&path);
        // Under whatever opening: the lock is taken where nobody has it.
        assert_eq!(untouched.take_back(&ours).unwrap(), None);
        assert!(!path.exists());
        assert!(untouched.take_back(&ours).unwrap().unwrap().contains("another file"), "it is gone already");

        let (locked, path) = made(folder.path());
        let (ours, another) = (opened(&path), opened(&path));
        assert_eq!(try_lock(&another).unwrap(), LockAttempt::Locked);
        assert!(locked.take_back(&ours).unwrap().unwrap().contains("in use by"));
        drop(another);
        assert!(path.exists());

        // A write of somebody who has it open without a lock, perhaps within the same step of the clock.
        std::os::unix::fs::FileExt::write_all_at(&ours, b"precious", 4096).unwrap();
        assert!(locked.take_back(&ours).unwrap().unwrap().contains("written to it"));
        assert!(path.exists());
        std::fs::remove_file(&path).unwrap();

        let (replaced, path) = made(folder.path());
        let ours = opened(&path);
        std::fs::rename(&path, folder.path().join("moved.img")).unwrap();
        std::fs::write(&path, "another's").unwrap();
        assert!(replaced.take_back(&ours).unwrap().unwrap().contains("another file"));
        assert_eq!(std::fs::read(&path).unwrap(), b"another's");
        assert!(folder.path().join("moved.img").exists());
    }

    /// As where no descriptor is left.
    #[test]
    fn nothing_stays_of_a_file_that_could_not_be_held() {
        let folder = tempfile::tempdir().unwrap();
        let (name, path) = (OsStr::new("new.img"), folder.path().join("new.img"));
        let opened = Folder::open(folder.path()).unwrap();
        let none_left = || io::Error::from_raw_os_error(libc::EMFILE);
        assert!(create_sparse_by(&opened, name, &path, 8192, || Err(none_left())).is_err());
        assert!(!path.exists());
        // Somebody has opened it meanwhile, and uses it.
        let mut another = None;
        let in_use = || {
            let file = File::options().read(true).write(true).open(&path)?;
            assert_eq!(try_lock(&file)?, LockAttempt::Locked);
            another = Some(file);
            Err(none_left())
        };
        assert!(create_sparse_by(&opened, name, &path, 8192, in_use).is_err());
        assert!(path.exists() && another.is_some());
        std::fs::remove_file(&path).unwrap();
        drop(another);
        // What somebody has put there meanwhile is his.
        let exchange = || {
            std::fs::remove_file(&path)?;
            std::fs::write(&path, "precious")?;
            Err(none_left())
        };
        assert!(create_sparse_by(&opened, name, &path, 8192, exchange).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    }
}
