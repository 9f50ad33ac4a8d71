//! One open file or block device, and what its kind allows.
//!
//! Invariant: a `DeviceFile` is one file description. Everything that is done to the device (I/O and lock) goes
//! through it, so the lock outlives the last request.

use crate::closing::EndsElsewhere;
use crate::file_system::{BTRFS, EXT, F2FS, TMPFS, XFS, file_system_of};
use crate::folder::{FileKind, Held};
use crate::memory::AlignedBuffer;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// How the bytes reach the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// O_DIRECT with offsets and lengths at multiples of this.
    Direct {
        /// 512 or 4096 bytes.
        align: u32,
    },
    /// Through the page cache, because O_DIRECT does not work.
    Buffered {
        /// Why it does not, for people.
        reason: String,
    },
}

/// An open device that operations share.
#[derive(Debug)]
pub struct DeviceFile {
    file: EndsElsewhere<File>,
    path: PathBuf,
    own_path: PathBuf,
    kind: FileKind,
    /// Of its file system and its inode, or of the device.
    numbers: (u64, u64),
    access: Access,
    /// Whether a ring serves it well, see [`DeviceFile::is_asynchronous`].
    asynchronous: bool,
    /// Every write is complete only when it is synced (RWF_DSYNC): a backing without O_DIRECT.
    stable_writes: bool,
}

impl DeviceFile {
    /// Opens for reading and writing; by O_DIRECT where that works, otherwise through the page cache.
    /// `exclusive` claims a block device (O_EXCL), so that it can be neither mounted nor opened so by others.
    pub fn open(path: &Path, exclusive: bool) -> io::Result<DeviceFile> {
        DeviceFile::open_for(path, exclusive, None)
    }

    /// The same for so many bytes from its start: by O_DIRECT only where that can write the last of them.
    pub fn open_for(path: &Path, exclusive: bool, bytes: Option<u64>) -> io::Result<DeviceFile> {
        DeviceFile::open_held(&Held::of(path)?, exclusive, bytes)
    }

    /// Opens what is held, whatever its path leads to by now.
    pub fn open_held(held: &Held, exclusive: bool, bytes: Option<u64>) -> io::Result<DeviceFile> {
        let (path, kind) = (held.path(), held.kind()?);
        let attempt = |flags: i32| held.open(true, flags | claim(kind, exclusive));
        let (file, access) = match attempt(libc::O_DIRECT) {
            Ok(file) => match probe_alignment(&file, kind).and_then(|align| fits(align, bytes)) {
                Ok(align) => (file, Access::Direct { align }),
                Err(reason) => {
                    drop(file);
                    (attempt(0)?, Access::Buffered { reason })
                }
            },
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                (attempt(0)?, Access::Buffered { reason: "the file system does not know O_DIRECT".into() })
            }
            Err(error) => return Err(error),
        };
        let (own_path, numbers) = (held.own_path()?, numbers_of(&file, kind)?);
        let asynchronous = works_asynchronously(&file, kind);
        let file = EndsElsewhere::new(path.display().to_string(), file);
        let path = path.to_owned();
        Ok(DeviceFile { file, path, own_path, kind, numbers, access, asynchronous, stable_writes: false })
    }

    /// From a file that is open already, used through the page cache.
    pub fn buffered(file: File, path: &Path, reason: &str) -> io::Result<DeviceFile> {
        let kind = if file.metadata()?.file_type().is_block_device() { FileKind::Block } else { FileKind::Regular };
        let access = Access::Buffered { reason: reason.into() };
        let (path, own_path, numbers) = (path.to_owned(), path.to_owned(), numbers_of(&file, kind)?);
        let asynchronous = works_asynchronously(&file, kind);
        let file = EndsElsewhere::new(path.display().to_string(), file);
        Ok(DeviceFile { file, path, own_path, kind, numbers, access, asynchronous, stable_writes: false })
    }

    /// Makes a buffered device sync each write before it counts as complete. O_DIRECT needs none of it: there,
    /// complete means that the device has it.
    pub fn with_stable_writes(mut self) -> DeviceFile {
        self.stable_writes = matches!(self.access, Access::Buffered { .. });
        self
    }

    /// Whether each write is synced by itself.
    pub fn stable_writes(&self) -> bool {
        self.stable_writes
    }

    /// Whether the kernel does its operations without holding up the thread that asks for them, and several writes at one time: block
    /// devices, and regular files of file systems that are known to do so.
    pub fn is_asynchronous(&self) -> bool {
        self.asynchronous
    }

    /// The path at which it was opened; it may lead elsewhere by now ([`whereabouts`]).
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where it lay when it was opened, whatever links have led there.
    pub fn own_path(&self) -> &Path {
        &self.own_path
    }

    /// Of its file system and its inode when it was opened, or of the device and nothing: two openings with others are of two files.
    pub fn numbers(&self) -> (u64, u64) {
        self.numbers
    }

    /// Regular file or block device.
    pub fn kind(&self) -> FileKind {
        self.kind
    }

    /// How the bytes reach it.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// Offsets, lengths and memory of operations must be multiples of this.
    pub fn align(&self) -> u32 {
        match self.access {
            Access::Direct { align } => align,
            Access::Buffered { .. } => 512,
        }
    }

    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Its descriptor, open as long as this is.
    pub fn raw(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Size in bytes now.
    pub fn size(&self) -> io::Result<u64> {
        size_of(&self.file, self.kind)
    }

    /// Reads at once, for opening; the buffer's length must be a multiple of the alignment. Bytes past the end
    /// are zeros.
    pub fn read_now(&self, offset: u64, buffer: &mut AlignedBuffer) -> io::Result<()> {
        buffer.fill(0);
        let mut done = 0;
        while done < buffer.len() {
            // SAFETY: the pointer and the length are what is left of the buffer, which is borrowed exclusively.
            let result = unsafe {
                let left = buffer.len() - done;
                libc::pread64(self.raw(), buffer.as_mut_ptr().add(done).cast(), left, (offset + done as u64) as i64)
            };
            if result < 0 {
                let error = io::Error::last_os_error();
                if error.kind() == io::ErrorKind::Interrupted {
                    continue;
                }
                return Err(error);
            }
            done += result as usize;
            // A length that is no multiple of a sector is only ever returned at the end of the file.
            if result == 0 || !done.is_multiple_of(512) {
                break;
            }
        }
        Ok(())
    }

    /// Writes at once, for opening and creating; offset and length must be multiples of the alignment.
    pub fn write_now(&self, offset: u64, buffer: &AlignedBuffer) -> io::Result<()> {
        let mut done = 0;
        while done < buffer.len() {
            // SAFETY: the pointer and the length are what is left of the buffer, which is borrowed.
            let result = unsafe {
                let left = buffer.len() - done;
                libc::pwrite64(self.raw(), buffer.as_ptr().add(done).cast(), left, (offset + done as u64) as i64)
            };
            match result {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                1.. => done += result as usize,
                _ => {
                    let error = io::Error::last_os_error();
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Err(error);
                    }
                }
            }
        }
        Ok(())
    }
}

/// Tells what [`DeviceFile::is_asynchronous`] says. These return EAGAIN for what they would have to wait for (FMODE_NOWAIT), and most of them
/// take direct writes in parallel (FOP_DIO_PARALLEL_WRITE). What overlayfs does is up to those below it, which may be any.
fn works_asynchronously(file: &File, kind: FileKind) -> bool {
    match kind {
        FileKind::Block => true,
        // A server that does not say is a server.
        FileKind::Regular => file_system_of(file).is_ok_and(|magic| [BTRFS, EXT, F2FS, TMPFS, XFS].contains(&magic)),
    }
}

/// Regular file or block device; anything else cannot hold a volume. To be asked of what is only shown: who goes on to open it holds it
/// first ([`Held`]).
pub fn kind_of(path: &Path) -> io::Result<FileKind> {
    Held::of(path)?.kind()
}

fn numbers_of(file: &File, kind: FileKind) -> io::Result<(u64, u64)> {
    let metadata = file.metadata()?;
    Ok(match kind {
        FileKind::Regular => (metadata.dev(), metadata.ino()),
        FileKind::Block => (metadata.rdev(), 0),
    })
}

/// Size of a file or block device.
pub fn size_of(file: &File, kind: FileKind) -> io::Result<u64> {
    match kind {
        FileKind::Regular => Ok(file.metadata()?.len()),
        FileKind::Block => {
            let mut bytes = 0u64;
            // SAFETY: BLKGETSIZE64 writes one u64 to the address given.
            let result = unsafe { libc::ioctl(file.as_raw_fd(), BLKGETSIZE64, &mut bytes) };
            if result < 0 { Err(io::Error::last_os_error()) } else { Ok(bytes) }
        }
    }
}

const BLKGETSIZE64: libc::c_ulong = 0x8008_1272;
const BLKSSZGET: libc::c_ulong = 0x1268;

/// The flag by which a device is claimed, so that it can be neither mounted nor opened so by others.
fn claim(kind: FileKind, exclusive: bool) -> i32 {
    if kind == FileKind::Block && exclusive { libc::O_EXCL } else { 0 }
}

/// The smallest alignment that O_DIRECT takes here: the kernel's word where it gives one, and a trial in any case.
fn probe_alignment(file: &File, kind: FileKind) -> Result<u32, String> {
    let size = size_of(file, kind).map_err(|error| format!("its size cannot be read: {error}"))?;
    let claimed = match kind {
        FileKind::Block => {
            let mut bytes: libc::c_int = 0;
            // SAFETY: BLKSSZGET writes one int to the address given.
            let result = unsafe { libc::ioctl(file.as_raw_fd(), BLKSSZGET, &mut bytes) };
            if result < 0 { None } else { Some(bytes as u32) }
        }
        FileKind::Regular => match direct_io_alignment(file) {
            Some((_, 0)) => return Err("the file system refuses O_DIRECT for this file".into()),
            Some((memory, offset)) => Some(memory.max(offset)),
            None => None,
        },
    };
    for align in [512u32, 4096] {
        if claimed.is_some_and(|claimed| claimed > align) || !size.is_multiple_of(u64::from(align)) {
            continue;
        }
        let mut buffer = AlignedBuffer::new(align as usize * 2);
        // Memory that is aligned to `align` and no better, as a stretch of a frame may be.
        // SAFETY: the second half of the buffer has `align` bytes.
        let result = unsafe {
            libc::pread64(file.as_raw_fd(), buffer.as_mut_ptr().add(align as usize).cast(), align as usize, 0)
        };
        if result >= 0 {
            return Ok(align);
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINVAL) {
            return Err(format!("a trial read by O_DIRECT failed: {error}"));
        }
    }
    Err(match claimed {
        Some(claimed) if !size.is_multiple_of(u64::from(claimed.max(512))) => {
            format!("its size of {size} bytes is not a multiple of the {claimed} bytes that O_DIRECT needs here")
        }
        Some(claimed) if claimed > 4096 => format!("O_DIRECT needs an alignment of {claimed} bytes here"),
        Some(_) | None if !size.is_multiple_of(512) => {
            format!("its size of {size} bytes is not a multiple of 512, which O_DIRECT needs")
        }
        Some(_) | None => "O_DIRECT takes neither 512 nor 4096 bytes here".into(),
    })
}

/// O_DIRECT writes whole units only: the last bytes of a volume that ends inside of one would never get there.
fn fits(align: u32, bytes: Option<u64>) -> Result<u32, String> {
    match bytes {
        Some(bytes) if !bytes.is_multiple_of(u64::from(align)) => {
            Err(format!("the volume's {bytes} bytes are not a multiple of the {align} bytes that O_DIRECT needs here"))
        }
        Some(_) | None => Ok(align),
    }
}

/// Memory and offset alignment by statx; none where the kernel or file system does not say.
fn direct_io_alignment(file: &File) -> Option<(u32, u32)> {
    let found = statx(file, libc::STATX_DIOALIGN)?;
    (found.stx_mask & libc::STATX_DIOALIGN != 0).then_some((found.stx_dio_mem_align, found.stx_dio_offset_align))
}

pub(crate) fn statx(file: &File, mask: u32) -> Option<libc::statx> {
    let mut found = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: an empty path with AT_EMPTY_PATH means the descriptor itself; `found` takes one statx.
    let result = unsafe { libc::statx(file.as_raw_fd(), c"".as_ptr(), libc::AT_EMPTY_PATH, mask, found.as_mut_ptr()) };
    // SAFETY: all zeros is a valid statx, and the kernel has filled it on success.
    (result == 0).then(|| unsafe { found.assume_init() })
}

/// Whether an open file is still what its path leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whereabouts {
    /// The path leads to the open file.
    InPlace,
    /// It has no name any more: it goes with the last that has it open.
    Deleted {
        /// Another file has its name.
        replaced: bool,
    },
    /// It was moved.
    Elsewhere {
        /// Where to, by the kernel's word.
        now: Option<PathBuf>,
        /// Another file has its name.
        replaced: bool,
    },
}

/// Looks whether the path of an open file still leads to it. A device node says nothing about its device.
pub fn whereabouts(file: &DeviceFile) -> io::Result<Whereabouts> {
    if file.kind() == FileKind::Block {
        return Ok(Whereabouts::InPlace);
    }
    let open = match file.file().metadata() {
        Ok(open) => Some(open),
        // A file server has forgotten it.
        Err(error) if error.raw_os_error() == Some(libc::ESTALE) => None,
        Err(error) => return Err(error),
    };
    let named = match std::fs::metadata(file.path()) {
        Ok(named) => Some(named),
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR)) => None,
        Err(error) => return Err(error),
    };
    let replaced = named.is_some();
    Ok(match (open, named) {
        // The path's word counts before the count of names, which some file systems do not keep.
        (Some(open), Some(named)) if (open.dev(), open.ino()) == (named.dev(), named.ino()) => Whereabouts::InPlace,
        (None, _) => Whereabouts::Deleted { replaced },
        (Some(open), _) if open.nlink() == 0 => Whereabouts::Deleted { replaced },
        (Some(_), _) => {
            let now = std::fs::read_link(format!("/proc/self/fd/{}", file.raw())).ok();
            Whereabouts::Elsewhere { now: now.filter(|now| now != file.path()), replaced }
        }
    })
}

/// Reserves the whole length, so that a lack of space shows now and not at an acknowledged write.
pub fn reserve(file: &File, length: u64) -> io::Result<()> {
    loop {
        // SAFETY: no memory is involved.
        let result = unsafe { libc::fallocate64(file.as_raw_fd(), 0, 0, length as i64) };
        if result == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;
    use std::os::unix::fs::OpenOptionsExt;

    #[test]
    fn a_size_between_sectors_is_served_through_the_page_cache() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("odd");
        std::fs::write(&path, vec![1u8; 1000]).unwrap();
        let file = DeviceFile::open(&path, false).unwrap().with_stable_writes();
        assert!(matches!(file.access(), Access::Buffered { reason } if reason.contains("1000")), "{:?}", file.access());
        assert!(file.stable_writes());
        let mut buffer = AlignedBuffer::new(4096);
        file.read_now(0, &mut buffer).unwrap();
        assert!(buffer[..1000].iter().all(|&b| b == 1));
        assert!(buffer[1000..].iter().all(|&b| b == 0));
    }

    #[test]
    fn the_alignment_that_was_found_works() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("even");
        std::fs::write(&path, vec![3u8; 65536]).unwrap();
        let file = DeviceFile::open(&path, false).unwrap();
        match file.access() {
            Access::Direct { align } => {
                let mut buffer = AlignedBuffer::new(*align as usize);
                buffer.fill(5);
                file.write_now(u64::from(*align), &buffer).unwrap();
                assert_eq!(std::fs::read(&path).unwrap()[*align as usize], 5);
            }
            Access::Buffered { reason } => {
                // A legal finding, but it must be true: O_DIRECT is refused here.
                assert!(!reason.is_empty());
                let direct = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&path);
                let works = direct.is_ok_and(|file| probe_alignment(&file, FileKind::Regular).is_ok());
                assert!(!works, "{reason}");
            }
        }
    }

    #[test]
    fn a_file_that_was_moved_replaced_or_deleted_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let (path, aside) = (folder.path().join("disk"), folder.path().join("aside"));
        std::fs::write(&path, [0u8; 4096]).unwrap();
        let file = DeviceFile::open(&path, false).unwrap();
        let look = || whereabouts(&file).unwrap();
        assert_eq!(look(), Whereabouts::InPlace);
        std::fs::rename(&path, &aside).unwrap();
        let now = Some(aside.canonicalize().unwrap());
        assert_eq!(look(), Whereabouts::Elsewhere { now: now.clone(), replaced: false });
        std::fs::write(&path, [0u8; 4096]).unwrap();
        assert_eq!(look(), Whereabouts::Elsewhere { now, replaced: true });
        std::fs::rename(&aside, &path).unwrap();
        assert_eq!(look(), Whereabouts::InPlace);
        std::fs::write(&aside, [0u8; 4096]).unwrap();
        std::fs::rename(&aside, &path).unwrap();
        assert_eq!(look(), Whereabouts::Deleted { replaced: true });
        std::fs::remove_file(&path).unwrap();
        assert_eq!(look(), Whereabouts::Deleted { replaced: false });
    }

    #[test]
    fn a_folder_is_not_a_device() {
        let error = kind_of(Path::new("/dev")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
