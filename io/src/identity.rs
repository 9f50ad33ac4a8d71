//! What tells one file from another that took its place, and an older copy from the present one.
//!
//! Invariants:
//! - What is to be found again after a loss of power was durable when it was read: [`durable_identity`] syncs it. Data that is
//!   synced says nothing of the time of its change: a file system may keep that in memory for half a minute more, and
//!   show it all the same (btrfs).
//! - That sync has a description of its own. An error of writing pages back is told to each description once: told to the one
//!   of the I/O here, it would be hidden from who must act on it.
//! - A number that a file system makes up anew says nothing ([`numbers_last`]). What stands in for it there is the birth time,
//!   and where there is none, a label that was put on the file.

use crate::file::{DeviceFile, statx};
use crate::file_system::{CIFS, FUSE, NFS, OVERLAY, SMB2, file_system_of};
use crate::folder::FileKind;
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

/// Compared with what a marker recorded. Of a block device only number and size say anything: the node in /dev is made anew
/// with each start of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Device number of the file system, or of the block device itself.
    pub device: u64,
    /// Inode number of a file; 0 of a block device.
    pub inode: u64,
    /// Birth time in nanoseconds since 1970, where the file system keeps one.
    pub birth_ns: Option<i128>,
    /// Size in bytes.
    pub size: u64,
    /// Last modification in nanoseconds since 1970.
    pub mtime_ns: i128,
}

/// Reads the identity of an open file.
pub fn identity(file: &DeviceFile) -> io::Result<Identity> {
    let metadata = file.file().metadata()?;
    if file.kind() == FileKind::Block {
        return Ok(Identity { device: metadata.rdev(), inode: 0, birth_ns: None, size: file.size()?, mtime_ns: 0 });
    }
    let birth_ns = statx(file.file(), libc::STATX_BTIME)
        .filter(|found| found.stx_mask & libc::STATX_BTIME != 0)
        .map(|found| i128::from(found.stx_btime.tv_sec) * 1_000_000_000 + i128::from(found.stx_btime.tv_nsec))
        // What a server behind FUSE leaves out is zero.
        .filter(|&ns| ns != 0);
    Ok(Identity {
        device: metadata.dev(),
        inode: metadata.ino(),
        birth_ns,
        size: file.size()?,
        mtime_ns: i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec()),
    })
}

/// Reads the identity of an open file, and makes sure that no loss of power takes anything of it back. Blocks for as long as
/// its file system does.
pub fn durable_identity(file: &DeviceFile) -> io::Result<Identity> {
    let read = identity(file)?;
    // A device too: what an owner before this one had written may be in its cache, and a flush that is asked for now covers it.
    sync_beside(file.file())?;
    Ok(read)
}

/// Syncs an open file, its times included, by another description of it.
pub fn sync_beside(file: &File) -> io::Result<()> {
    // The file that is open, whatever its path leads to by now.
    File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))?.sync_all()
}

const MSDOS: u64 = 0x4d44;
const EXFAT: u64 = 0x2011_bab0;
const PLAN9: u64 = 0x0102_1997;

/// Whether a file has the same inode number for ever, as far as its file system's kind tells. One that numbers files as it meets
/// them, or passes on what a server says, may give another one after each mount.
pub fn numbers_last(file: &File) -> io::Result<bool> {
    Ok(!matches!(file_system_of(file)?, MSDOS | EXFAT | PLAN9 | NFS | CIFS | SMB2 | FUSE | OVERLAY))
}

/// Name of the label: an extended attribute that any user of the file may set.
const LABEL: &CStr = c"user.forebay";
/// Longest label that is read.
const LABEL_BYTES_MAX: usize = 128;

/// The label that was put on a file; none where there is none, or where files take none.
pub fn label(file: &File) -> Option<String> {
    let mut bytes = [0u8; LABEL_BYTES_MAX];
    // SAFETY: the name is terminated, and pointer and length are those of one local array.
    let got = unsafe { libc::fgetxattr(file.as_raw_fd(), LABEL.as_ptr(), bytes.as_mut_ptr().cast(), LABEL_BYTES_MAX) };
    let got = usize::try_from(got).ok()?;
    String::from_utf8(bytes[..got].to_vec()).ok()
}

/// Puts a label on a file, in the place of the one that it has. Not every file system takes one.
pub fn set_label(file: &File, text: &str) -> io::Result<()> {
    // SAFETY: the name is terminated, and pointer and length are those of one borrowed string.
    let result = unsafe { libc::fsetxattr(file.as_raw_fd(), LABEL.as_ptr(), text.as_ptr().cast(), text.len(), 0) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_tells_a_copy_from_the_original() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (folder.path().join("a"), folder.path().join("b"));
        std::fs::write(&a, [0u8; 4096]).unwrap();
        std::fs::copy(&a, &b).unwrap();
        let first = identity(&DeviceFile::open(&a, false).unwrap()).unwrap();
        assert_eq!(first, durable_identity(&DeviceFile::open(&a, false).unwrap()).unwrap());
        assert_ne!(first, identity(&DeviceFile::open(&b, false).unwrap()).unwrap());
    }

    #[test]
    fn a_file_without_a_name_is_synced_and_told_as_well() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, [0u8; 4096]).unwrap();
        let file = DeviceFile::open(&path, false).unwrap();
        let before = identity(&file).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(durable_identity(&file).unwrap(), before);
    }

    #[test]
    fn the_newest_label_is_found_again_and_a_copy_has_none() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (folder.path().join("a"), folder.path().join("b"));
        std::fs::write(&a, [0u8; 4096]).unwrap();
        let file = File::open(&a).unwrap();
        assert_eq!(label(&file), None);
        if let Err(error) = set_label(&file, "one") {
            // A file system without extended attributes says so, and nothing else.
            assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP));
            return crate::skip::skip("this file system has no extended attributes");
        }
        set_label(&file, "two").unwrap();
        assert_eq!(label(&File::open(&a).unwrap()).as_deref(), Some("two"));
        std::fs::write(&b, std::fs::read(&a).unwrap()).unwrap();
        assert_eq!(label(&File::open(&b).unwrap()), None);
    }
}
