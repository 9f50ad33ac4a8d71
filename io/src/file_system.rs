//! Which file system a file lies on.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

// What statfs calls them; linux/magic.h, and the sources of those that are not in it.
pub(crate) const EXT: u64 = 0xef53;
pub(crate) const XFS: u64 = 0x5846_5342;
pub(crate) const BTRFS: u64 = 0x9123_683e;
pub(crate) const F2FS: u64 = 0xf2f5_2010;
pub(crate) const ZFS: u64 = 0x2fc1_2fc1;
pub(crate) const BCACHEFS: u64 = 0xca45_1a4e;
pub(crate) const TMPFS: u64 = 0x0102_1994;
pub(crate) const NFS: u64 = 0x6969;
pub(crate) const CIFS: u64 = 0xff53_4d42;
pub(crate) const SMB2: u64 = 0xfe53_4d42;
pub(crate) const FUSE: u64 = 0x6573_5546;
pub(crate) const OVERLAY: u64 = 0x794c_7630;
pub(crate) const CEPH: u64 = 0x00c3_6400;

/// What `statfs` calls the file system of an open file.
pub(crate) fn file_system_of(file: &File) -> io::Result<u64> {
    let mut found = std::mem::MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: the descriptor is open and `found` takes one statfs.
    let result = unsafe { libc::fstatfs(file.as_raw_fd(), found.as_mut_ptr()) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: all zeros is a valid statfs, and the kernel has filled it.
    Ok(unsafe { found.assume_init() }.f_type as u64 & 0xffff_ffff)
}
