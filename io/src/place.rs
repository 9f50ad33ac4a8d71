//! On what kind of file system a tier's file lies: memory has rules of its own there.
//!
//! Huge pages: a file of hugetlbfs has whole pages only, is reached by mapping and by reading and never by writing, and
//! takes its room from a pool that the administrator has reserved, whatever memory is free.

use std::ffi::CString;
use std::path::Path;

/// Kind of file system that a path leads to, and so what makes room there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A medium of its own, or what cannot be told.
    Disk,
    /// Memory, in pages of the usual size; how much is a mount option.
    Tmpfs,
    /// Memory in huge pages of so many bytes, from the kernel's pool of them.
    HugePages {
        /// Bytes of a page.
        page_bytes: u64,
    },
}

impl Place {
    /// Of a file or folder that exists.
    pub fn of(path: &Path) -> Place {
        let Ok(path) = CString::new(path.as_os_str().as_encoded_bytes()) else { return Place::Disk };
        // SAFETY: all zeros is a valid statfs.
        let mut found: libc::statfs = unsafe { std::mem::zeroed() };
        // SAFETY: a terminated path and a place for one statfs.
        let result = unsafe { libc::statfs(path.as_ptr(), &mut found) };
        match found.f_type {
            _ if result != 0 => Place::Disk,
            libc::TMPFS_MAGIC => Place::Tmpfs,
            libc::HUGETLBFS_MAGIC => Place::HugePages { page_bytes: found.f_bsize as u64 },
            _ => Place::Disk,
        }
    }

    /// Outlives the process and not the host.
    pub fn is_memory(self) -> bool {
        match self {
            Place::Disk => false,
            Place::Tmpfs | Place::HugePages { .. } => true,
        }
    }

    /// What a file of this length really takes: whole pages.
    pub fn file_bytes(self, length: u64) -> u64 {
        match self {
            Place::Disk | Place::Tmpfs => length,
            Place::HugePages { page_bytes } => length.next_multiple_of(page_bytes),
        }
    }
}

/// The kernel's pool of huge pages of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HugePagePool {
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Pages in it.
    pub pages: u64,
    /// Of these, free and not promised to anybody.
    pub free: u64,
}

impl HugePagePool {
    /// As it is now; empty where the kernel tells nothing.
    pub fn read(page_bytes: u64) -> HugePagePool {
        let count = |name: &str| -> u64 {
            let path = format!("/sys/kernel/mm/hugepages/hugepages-{}kB/{name}", page_bytes >> 10);
            std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
        };
        let free = count("free_hugepages").saturating_sub(count("resv_hugepages"));
        HugePagePool { page_bytes, pages: count("nr_hugepages"), free }
    }

    /// The line that makes it large enough for one more file of this length.
    pub fn line_that_makes_room_for(self, length: u64) -> String {
        let pages = self.pages + length.div_ceil(self.page_bytes).saturating_sub(self.free);
        match self.page_bytes {
            // The usual size of a huge page: the one that this name means.
            0x20_0000 => format!("sysctl vm.nr_hugepages={pages}"),
            bytes => format!("echo {pages} >/sys/kernel/mm/hugepages/hugepages-{}kB/nr_hugepages", bytes >> 10),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_are_told_apart() {
        assert_eq!(Place::of(Path::new("/dev/shm")), Place::Tmpfs);
        assert_eq!(Place::of(Path::new("/proc")), Place::Disk);
        assert_eq!(Place::of(Path::new("/no/such/path")), Place::Disk);
    }

    #[test]
    fn only_huge_pages_round_up() {
        assert_eq!(Place::Tmpfs.file_bytes(4096), 4096);
        let huge = Place::HugePages { page_bytes: 2 << 20 };
        assert_eq!((huge.file_bytes(4096), huge.file_bytes(4 << 20)), (2 << 20, 4 << 20));
    }

    #[test]
    fn the_line_counts_what_is_missing() {
        let pool = HugePagePool { page_bytes: 2 << 20, pages: 10, free: 4 };
        assert_eq!(pool.line_that_makes_room_for(12 << 20), "sysctl vm.nr_hugepages=12");
        assert_eq!(pool.line_that_makes_room_for(2 << 20), "sysctl vm.nr_hugepages=10");
        let large = HugePagePool { page_bytes: 1 << 30, pages: 0, free: 0 };
        assert_eq!(
            large.line_that_makes_room_for(1),
            "echo 1 >/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages"
        );
    }
}
