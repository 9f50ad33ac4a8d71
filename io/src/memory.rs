//! Memory that the kernel reads and writes on our behalf: mappings and aligned buffers.
//!
//! Invariant: it is freed or unmapped with its last owner, and an operation under way is one of them.

use crate::closing::EndsElsewhere;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

/// Alignment of everything that goes to a device by O_DIRECT: enough for 4096-byte logical blocks.
pub const BUFFER_ALIGN: usize = 4096;

/// A stretch of mapped memory, unmapped with its last owner.
#[derive(Debug)]
pub struct Mapping {
    region: EndsElsewhere<Region>,
    /// What is in it may be there before this process has looked.
    of_file: bool,
}

/// Mapped addresses, unmapped at its end.
#[derive(Debug)]
struct Region {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping is plain memory without thread affinity; who may touch which frame when is core's rule, and
// the type itself only hands out raw pointers.
unsafe impl Send for Region {}
// SAFETY: as for Send.
unsafe impl Sync for Region {}

impl Mapping {
    /// Private anonymous memory, left out of core dumps, in huge pages where the kernel likes. `prefault` touches
    /// every page now, so that no page fault comes while serving.
    pub fn anonymous(length: usize, prefault: bool) -> io::Result<Mapping> {
        let mapping = Mapping::map(
            length,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            &format!("cannot map {length} bytes of memory; give the volume a smaller cache or the host more memory"),
        )?;
        mapping.advise(libc::MADV_HUGEPAGE);
        mapping.advise(libc::MADV_DONTDUMP);
        if prefault {
            mapping.prefault()?;
        }
        Ok(mapping)
    }

    /// A whole file, shared: what is stored here is in the file at once, also when this process is killed. The
    /// mapping holds the file description, and so its lock, until it is unmapped.
    pub fn shared(file: &File, length: usize) -> io::Result<Mapping> {
        let mapping = Mapping::map(length, libc::MAP_SHARED, file.as_raw_fd(), "cannot map the tier's file")?;
        // Takes effect where the mount says huge=advise.
        mapping.advise(libc::MADV_HUGEPAGE);
        mapping.advise(libc::MADV_DONTDUMP);
        Ok(mapping)
    }

    /// Keeps every page out of swap, if the process may.
    pub fn lock_in_memory(&self) -> io::Result<()> {
        // SAFETY: the range is exactly our own mapping; locking does not change its content.
        if unsafe { libc::mlock(self.region.start.as_ptr().cast(), self.region.length) } == 0 {
            return Ok(());
        }
        let (error, mib) = (io::Error::last_os_error(), self.region.length.div_ceil(1 << 20));
        Err(io::Error::new(
            error.kind(),
            format!(
                "cannot lock {mib} MiB into memory: {error}; it may be swapped out, which costs speed, not data. Allow \
                 it by `LimitMEMLOCK=infinity` (systemd) or `--ulimit memlock=-1` (container)"
            ),
        ))
    }

    fn map(length: usize, flags: i32, descriptor: i32, attempted: &str) -> io::Result<Mapping> {
        assert!(length > 0, "an empty mapping has no use");
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ | libc::PROT_WRITE, flags, descriptor, 0)
        };
        if start == libc::MAP_FAILED {
            let error = io::Error::last_os_error();
            return Err(io::Error::new(error.kind(), format!("{attempted}: {error}")));
        }
        let start = NonNull::new(start.cast()).expect("mmap without MAP_FIXED never returns address 0");
        let region = EndsElsewhere::new(format!("{length} bytes of memory"), Region { start, length });
        Ok(Mapping { region, of_file: flags & libc::MAP_SHARED != 0 })
    }

    /// Advice is a wish: a kernel without the feature refuses it and everything works as before.
    fn advise(&self, advice: i32) {
        // SAFETY: the range is exactly our own mapping, and none of the advices used here changes its content.
        unsafe { libc::madvise(self.region.start.as_ptr().cast(), self.region.length, advice) };
    }

    /// Brings every page in now, for writing.
    pub fn prefault(&self) -> io::Result<()> {
        // SAFETY: the range is exactly our own mapping; populating does not change its content.
        let result =
            unsafe { libc::madvise(self.region.start.as_ptr().cast(), self.region.length, libc::MADV_POPULATE_WRITE) };
        if result == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINVAL) {
            return Err(error);
        }
        // Kernels before 5.14: write each page's first byte back.
        for at in (0..self.region.length).step_by(4096) {
            // SAFETY: `at` lies within the mapping; nobody else has its address yet, or holds it under the same rule.
            unsafe {
                let byte = self.region.start.as_ptr().add(at);
                byte.write_volatile(byte.read_volatile());
            }
        }
        Ok(())
    }

    /// Its pages are those of a file.
    pub fn is_of_file(&self) -> bool {
        self.of_file
    }

    /// Address of its first byte, valid as long as this is.
    pub fn as_ptr(&self) -> *mut u8 {
        self.region.start.as_ptr()
    }

    /// Bytes that are mapped.
    pub fn len(&self) -> usize {
        self.region.length
    }

    /// Never true: an empty mapping cannot be made.
    pub fn is_empty(&self) -> bool {
        self.region.length == 0
    }
}

/// Whether this process may have so much more memory: of its own, beside what it maps. Where it may not, an allocation of as much would
/// be the end of the process; asked first, it is an error of whoever wants it.
pub fn can_be_had(bytes: u64) -> io::Result<()> {
    let Some(length) = usize::try_from(bytes).ok().filter(|length| *length > 0) else { return Ok(()) };
    let attempted =
        format!("cannot have {length} bytes more of memory; raise the limit (ulimit -v), or take a smaller tier");
    // Given back at once, and nothing is touched: only limits count, and where overcommit is strict what was promised to others.
    Mapping::map(length, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1, &attempted).map(drop)
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: this is our own mapping, and its last owner is going; operations in flight own it too.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// Heap memory aligned for O_DIRECT. Its capacity is whole 4 KiB blocks; `len` is what is in use.
#[derive(Debug)]
pub struct AlignedBuffer {
    start: NonNull<u8>,
    capacity: usize,
    length: usize,
}

// SAFETY: the buffer is uniquely owned plain memory.
unsafe impl Send for AlignedBuffer {}
// SAFETY: shared references only read.
unsafe impl Sync for AlignedBuffer {}

impl AlignedBuffer {
    /// So many zeroed bytes; what they take is rounded up to whole blocks.
    pub fn new(length: usize) -> AlignedBuffer {
        let capacity = length.next_multiple_of(BUFFER_ALIGN).max(BUFFER_ALIGN);
        let layout = Layout::from_size_align(capacity, BUFFER_ALIGN).expect("lengths here are far below isize::MAX");
        // SAFETY: the layout has a size above zero.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { std::alloc::handle_alloc_error(layout) };
        AlignedBuffer { start, capacity, length }
    }

    /// Bytes that may be used without a new allocation.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Changes the length within the capacity; the content stays as it is.
    pub fn set_len(&mut self, length: usize) {
        assert!(length <= self.capacity, "an aligned buffer does not grow");
        self.length = length;
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.start.as_ptr()
    }
}

impl std::ops::Deref for AlignedBuffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `length` bytes were allocated, zeroed at first, and are uniquely owned.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl std::ops::DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for Deref, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        let layout = Layout::from_size_align(self.capacity, BUFFER_ALIGN).expect("was valid when allocated");
        // SAFETY: allocated in `new` with this very layout.
        unsafe { dealloc(self.start.as_ptr(), layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_buffers_are_aligned_and_zeroed() {
        let buffer = AlignedBuffer::new(5000);
        assert!((buffer.as_ptr() as usize).is_multiple_of(BUFFER_ALIGN));
        assert_eq!((buffer.len(), buffer.capacity()), (5000, 8192));
        assert!(buffer.iter().all(|&b| b == 0));
    }
}
