//! Small files that are replaced and removed whole: a reader, and a loss of power, see the old state or the new one.
//!
//! An error says what was attempted, why it failed, and what to do about a folder that takes nothing.

use crate::folder;
use std::io;
use std::path::Path;

/// Replaces a file whole and durably.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    folder::replace(path, bytes, 0o644).map_err(|error| with_cure(error, format!("cannot write {}", path.display())))
}

/// The same of a file that nobody but the daemon's user may read.
pub fn write_secret_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    folder::replace(path, bytes, 0o600).map_err(|error| with_cure(error, format!("cannot write {}", path.display())))
}

/// What was attempted, why it failed, and what to do about a folder that takes nothing.
fn with_cure(error: io::Error, attempted: String) -> io::Error {
    let cure = match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => "; free some room there",
        Some(libc::EROFS) => "; see why its file system is read-only (dmesg), and mount it writable",
        Some(libc::EIO) => "; its medium fails: see dmesg",
        Some(libc::EACCES | libc::EPERM) => "; give the daemon's user the right to",
        Some(libc::EMFILE) => "; allow the daemon more open files (LimitNOFILE=)",
        Some(_) | None => "",
    };
    io::Error::new(error.kind(), format!("{attempted}: {error}{cure}"))
}

/// Removes a file, durably; one that is not there is as good.
pub fn remove_durably(path: &Path) -> io::Result<()> {
    let removed = folder::remove(path).map(|_| ());
    removed.map_err(|error| with_cure(error, format!("cannot remove {}", path.display())))
}
