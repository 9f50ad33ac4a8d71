//! The calls of the kernel that take a folder by its descriptor.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// What a name is the name of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Regular,
    Folder,
    Link,
    Block,
    Socket,
    Other,
}

/// What the kernel says of a name or a descriptor.
pub(super) struct Stat {
    pub kind: Kind,
    pub user: u32,
    pub group: u32,
    /// The nine bits of rights.
    pub mode: u32,
    /// In such a folder only the owner of a name, or of the folder, takes the name away.
    pub is_sticky: bool,
    /// How many names it has.
    pub names: u64,
    /// Device and number: the same for each of its names.
    pub identity: (u64, u64),
}

/// The user of this process.
pub(super) fn own_user() -> u32 {
    // SAFETY: it has no arguments, cannot fail and touches no memory.
    unsafe { libc::geteuid() }
}

/// Whether it is root or the user of this process.
pub(super) fn is_ours(user: u32) -> bool {
    user == 0 || user == own_user()
}

/// Whether this process, which is not root's, works as this group.
pub(super) fn is_own_group(group: u32) -> bool {
    // SAFETY: as for `own_user`.
    own_user() != 0 && group == unsafe { libc::getegid() }
}

fn text(name: &OsStr) -> io::Result<CString> {
    CString::new(name.as_bytes()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
}

fn done(result: i32) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn opened(folder: i32, name: &CStr, flags: i32, mode: u32) -> io::Result<OwnedFd> {
    loop {
        // SAFETY: the name outlives the call, which takes numbers besides.
        let fd = unsafe { libc::openat(folder, name.as_ptr(), flags | libc::O_CLOEXEC, mode) };
        if fd >= 0 {
            // SAFETY: it was opened here and nobody else has it.
            return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

const FOLDER: i32 = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW;

pub(super) fn open_root() -> io::Result<OwnedFd> {
    opened(libc::AT_FDCWD, c"/", FOLDER, 0)
}

/// As if it were on the way to something in it: what is mounted when it is needed (autofs) is mounted, which a folder that is only opened
/// is not.
pub(super) fn open_folder_at(folder: BorrowedFd<'_>, name: &OsStr) -> io::Result<OwnedFd> {
    let mut inside = name.to_owned();
    inside.push("/.");
    let inside = text(&inside)?;
    // SAFETY: the kernel's structure of three numbers, for which zero is a value.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = (FOLDER | libc::O_CLOEXEC) as u64;
    how.resolve = libc::RESOLVE_NO_SYMLINKS;
    let size = size_of::<libc::open_how>();
    // SAFETY: the name and the structure outlive the call, which is told the structure's size.
    let fd = unsafe { libc::syscall(libc::SYS_openat2, folder.as_raw_fd(), inside.as_ptr(), &raw const how, size) };
    if let Ok(fd) = i32::try_from(fd)
        && fd >= 0
    {
        // SAFETY: it was opened here and nobody else has it.
        return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        // A list of allowed calls that is older than this one; and a rename that it has noticed, which the plain call does not mind.
        Some(libc::ENOSYS | libc::EPERM | libc::EAGAIN | libc::EINTR) => {
            opened(folder.as_raw_fd(), &text(name)?, FOLDER, 0)
        }
        Some(_) | None => Err(error),
    }
}

/// What a path leads to whose root is a folder: itself, which nobody has opened. Links are followed as that root's own, and no path leads
/// out of it. None: this kernel, or the list of calls that it allows, is older than that, or names were changing meanwhile.
pub(super) fn place_inside(root: BorrowedFd<'_>, path: &Path) -> io::Result<Option<OwnedFd>> {
    let path = text(path.as_os_str())?;
    // SAFETY: the kernel's structure of three numbers, for which zero is a value.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = (libc::O_PATH | libc::O_CLOEXEC) as u64;
    how.resolve = libc::RESOLVE_IN_ROOT | libc::RESOLVE_NO_MAGICLINKS;
    let size = size_of::<libc::open_how>();
    // SAFETY: the path and the structure outlive the call, which is told the structure's size.
    let fd = unsafe { libc::syscall(libc::SYS_openat2, root.as_raw_fd(), path.as_ptr(), &raw const how, size) };
    if let Ok(fd) = i32::try_from(fd)
        && fd >= 0
    {
        // SAFETY: it was opened here and nobody else has it.
        return Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) }));
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ENOSYS | libc::EPERM | libc::EAGAIN | libc::EINTR) => Ok(None),
        Some(_) | None => Err(error),
    }
}

/// A name, of whatever kind and without opening what it is that of.
pub(super) fn open_name_at(folder: BorrowedFd<'_>, name: &OsStr) -> io::Result<OwnedFd> {
    opened(folder.as_raw_fd(), &text(name)?, libc::O_PATH | libc::O_NOFOLLOW, 0)
}

/// Reads and writes of the open file wait as those of any other do.
pub(super) fn let_wait(file: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: both calls take and give numbers; the descriptor is open as long as it is borrowed.
    let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
    // SAFETY: as above.
    if flags < 0 || unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags & !libc::O_NONBLOCK) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// The folder itself, by a descriptor that can be read and synced.
pub(super) fn open_readable(folder: BorrowedFd<'_>) -> io::Result<File> {
    opened(folder.as_raw_fd(), c".", libc::O_RDONLY | libc::O_DIRECTORY, 0).map(File::from)
}

/// Never through a link, never waiting for the other end of a pipe, and no terminal becomes this process's own.
pub(super) fn open_file_at(folder: BorrowedFd<'_>, name: &OsStr, flags: i32, mode: u32) -> io::Result<File> {
    let careful = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    opened(folder.as_raw_fd(), &text(name)?, flags | careful, mode).map(File::from)
}

/// What a descriptor stands for, opened for reading: with no wait for a lease, a kernel's log or the other end of a pipe.
pub(super) fn open_again(place: BorrowedFd<'_>) -> io::Result<File> {
    let path = text(path_of(place).as_os_str())?;
    opened(libc::AT_FDCWD, &path, libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY, 0).map(File::from)
}

/// What a path leads to by the kernel's own way, magic links of `/proc` included: its device and number, and the mount that it lies in
/// (0: this kernel does not tell it).
pub(super) fn identity_of(path: &Path) -> io::Result<(u32, u32, u64, u64)> {
    let path = text(path.as_os_str())?;
    let mut raw = MaybeUninit::<libc::statx>::zeroed();
    let wanted = libc::STATX_INO | libc::STATX_MNT_ID;
    // SAFETY: the path outlives the call, and there is room for what it writes.
    done(unsafe { libc::statx(libc::AT_FDCWD, path.as_ptr(), 0, wanted, raw.as_mut_ptr()) })?;
    // SAFETY: the call has written it, and zero is a value of each of its numbers.
    let raw = unsafe { raw.assume_init_ref() };
    let mount = if raw.stx_mask & libc::STATX_MNT_ID != 0 { raw.stx_mnt_id } else { 0 };
    Ok((raw.stx_dev_major, raw.stx_dev_minor, raw.stx_ino, mount))
}

fn stat_from(raw: &libc::stat64) -> Stat {
    let kind = match raw.st_mode & libc::S_IFMT {
        libc::S_IFREG => Kind::Regular,
        libc::S_IFDIR => Kind::Folder,
        libc::S_IFLNK => Kind::Link,
        libc::S_IFBLK => Kind::Block,
        libc::S_IFSOCK => Kind::Socket,
        _ => Kind::Other,
    };
    Stat {
        kind,
        user: raw.st_uid,
        group: raw.st_gid,
        mode: raw.st_mode & 0o777,
        is_sticky: raw.st_mode & libc::S_ISVTX != 0,
        // The type differs between processors.
        #[allow(clippy::useless_conversion)]
        names: raw.st_nlink.into(),
        identity: (raw.st_dev, raw.st_ino),
    }
}

fn stat(folder: i32, name: &CStr, flags: i32) -> io::Result<Stat> {
    let mut raw = MaybeUninit::<libc::stat64>::zeroed();
    // SAFETY: the name outlives the call, and there is room for what it writes.
    done(unsafe { libc::fstatat64(folder, name.as_ptr(), raw.as_mut_ptr(), flags) })?;
    // SAFETY: the call has written it.
    Ok(stat_from(unsafe { raw.assume_init_ref() }))
}

/// Of a name, not of what a link leads to.
pub(super) fn stat_at(folder: BorrowedFd<'_>, name: &OsStr) -> io::Result<Stat> {
    stat(folder.as_raw_fd(), &text(name)?, libc::AT_SYMLINK_NOFOLLOW)
}

pub(super) fn stat_of(fd: BorrowedFd<'_>) -> io::Result<Stat> {
    stat(fd.as_raw_fd(), c"", libc::AT_EMPTY_PATH)
}

pub(super) fn read_link_at(folder: BorrowedFd<'_>, name: &OsStr) -> io::Result<PathBuf> {
    let name = text(name)?;
    let mut bytes = vec![0u8; libc::PATH_MAX as usize];
    // SAFETY: the name outlives the call, which writes no more than the buffer's length.
    let length = unsafe { libc::readlinkat(folder.as_raw_fd(), name.as_ptr(), bytes.as_mut_ptr().cast(), bytes.len()) };
    let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
    bytes.truncate(length);
    Ok(OsString::from_vec(bytes).into())
}

pub(super) fn make_folder_at(folder: BorrowedFd<'_>, name: &OsStr, mode: u32) -> io::Result<()> {
    let name = text(name)?;
    // SAFETY: the name outlives the call.
    done(unsafe { libc::mkdirat(folder.as_raw_fd(), name.as_ptr(), mode) })
}

pub(super) fn remove_at(folder: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    let name = text(name)?;
    // SAFETY: the name outlives the call.
    done(unsafe { libc::unlinkat(folder.as_raw_fd(), name.as_ptr(), 0) })
}

pub(super) fn rename_at(folder: BorrowedFd<'_>, from: &OsStr, to: &OsStr) -> io::Result<()> {
    let (from, to, folder) = (text(from)?, text(to)?, folder.as_raw_fd());
    // SAFETY: both names outlive the call.
    done(unsafe { libc::renameat(folder, from.as_ptr(), folder, to.as_ptr()) })
}

pub(super) fn link_at(folder: BorrowedFd<'_>, from: &OsStr, to: &OsStr) -> io::Result<()> {
    let (from, to, folder) = (text(from)?, text(to)?, folder.as_raw_fd());
    // SAFETY: both names outlive the call.
    done(unsafe { libc::linkat(folder, from.as_ptr(), folder, to.as_ptr(), 0) })
}

pub(super) fn symlink_at(folder: BorrowedFd<'_>, target: &OsStr, name: &OsStr) -> io::Result<()> {
    let (target, name) = (text(target)?, text(name)?);
    // SAFETY: both texts outlive the call.
    done(unsafe { libc::symlinkat(target.as_ptr(), folder.as_raw_fd(), name.as_ptr()) })
}

/// Where this process can name what a descriptor stands for.
pub(super) fn path_of(fd: BorrowedFd<'_>) -> PathBuf {
    Path::new("/proc/self/fd").join(fd.as_raw_fd().to_string())
}

/// The path of what a descriptor stands for, for people.
pub(super) fn name_of(fd: BorrowedFd<'_>) -> Option<PathBuf> {
    std::fs::read_link(path_of(fd)).ok()
}

pub(super) fn names_of(folder: BorrowedFd<'_>) -> io::Result<Vec<OsString>> {
    let readable = OwnedFd::from(open_readable(folder)?);
    let entries = std::fs::read_dir(path_of(std::os::fd::AsFd::as_fd(&readable)))?;
    entries.map(|entry| entry.map(|entry| entry.file_name())).collect()
}
