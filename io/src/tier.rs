//! The fast medium of a volume: a shared mapping of a file in tmpfs or hugetlbfs, or a file or device on flash.
//!
//! Invariants:
//! - The whole length is reserved when a tier is made, so that no acknowledged write meets a full file system.
//! - The whole-file lock is awaited before the tier is looked at, on the file description that carries its I/O (or is
//!   mapped): nothing of an earlier process can change it any more.
//! - A tier that cannot be used is left as it was.
//! - What was looked at is what is opened, locked and, where making it fails, removed again: its folder may be another user's ([`Held`]).

use crate::file::{Access, DeviceFile, reserve, size_of};
use crate::file_error::FileError;
use crate::folder::{FileKind, Folder, Held};
use crate::lock::{LockAttempt, await_lock};
use crate::memory::{AlignedBuffer, Mapping};
use crate::place::{HugePagePool, Place};
use forebay_core::format::{DESCRIPTOR_BYTES, DESCRIPTOR_UNFINISHED, DESCRIPTORS_PER_BLOCK, TIER_BLOCK_BYTES};
use forebay_core::types::TierBlock;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;
use std::{fmt, io};

/// Bytes written at a time while a new flash tier is filled with zeros.
const PREWRITE_BYTES: usize = 1 << 20;
/// Head buffers kept for the next tier writes.
const HEADS_KEPT_MAX: usize = 64;

/// What errors call it.
const WHAT: &str = "the tier";

/// Why a tier cannot be used.
#[derive(Debug)]
pub enum TierError {
    /// The file system has no room for the whole tier.
    NoRoom {
        /// The tier that needs the room.
        path: PathBuf,
        /// Bytes that the whole tier takes.
        length: u64,
        /// Bytes that the file system could give before the tier took any.
        available: u64,
        /// What kind of file system that is, and so what makes room.
        place: Place,
    },
    /// Anything else that keeps a file from being used.
    File(FileError),
}

impl fmt::Display for TierError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes.div_ceil(1 << 20);
        match self {
            TierError::NoRoom { path, length, available, place } => {
                write!(f, "cannot reserve {} MiB for the tier {}: ", mib(*length), path.display())?;
                if available >= length {
                    write!(
                        f,
                        "its file system says that there is no room, although {} MiB were free: what is reserved for others, a limit of \
                         a folder or room for its own records may be what is missing; ",
                        available >> 20
                    )?;
                } else {
                    write!(f, "the file system has room for {} MiB; ", available >> 20)?;
                }
                match place {
                    Place::Tmpfs => {
                        let mount = mount_point_of(path).unwrap_or_else(|| "MOUNT".into());
                        let size = mib(*length) + mib(used_bytes(path));
                        write!(
                            f,
                            "enlarge it: `mount -o remount,size={size}M {mount}` (in a container: `--shm-size`)"
                        )?;
                    }
                    Place::HugePages { page_bytes } => {
                        let line = HugePagePool::read(*page_bytes).line_that_makes_room_for(*length);
                        write!(f, "reserve more huge pages: `{line}` (for good: a file in /etc/sysctl.d)")?;
                    }
                    Place::Disk => write!(f, "free some space")?,
                }
                write!(f, ", or choose a smaller tier by `--tier-size`")
            }
            TierError::File(error) => error.fmt(f),
        }
    }
}

// What a system call said is part of the text: given as a source as well, it would be printed twice.
impl std::error::Error for TierError {}

fn failed(attempted: &'static str, path: &Path) -> impl FnOnce(io::Error) -> TierError {
    let path = path.to_owned();
    move |error| TierError::File(FileError::failed(WHAT, &path, attempted, error))
}

fn unusable(path: &Path, reason: impl Into<String>) -> TierError {
    TierError::File(FileError::unusable(WHAT, path, reason))
}

fn lock(file: &File, path: &Path, timeout: Duration) -> Result<(), TierError> {
    match await_lock(file, timeout).map_err(failed("lock", path))? {
        LockAttempt::Locked => Ok(()),
        LockAttempt::HeldBy(holder) => Err(TierError::File(FileError::held_by(WHAT, path, holder, timeout))),
    }
}

fn check_length(path: &Path, length: u64) -> Result<(), TierError> {
    let blocks = length / TIER_BLOCK_BYTES as u64;
    if length == 0 || !length.is_multiple_of(TIER_BLOCK_BYTES as u64) || blocks > u64::from(u32::MAX) {
        let reason = format!("{length} bytes is not a whole number of 4 KiB blocks between 1 and 2^32");
        return Err(unusable(path, reason));
    }
    Ok(())
}

fn file_system(path: &Path) -> Option<libc::statvfs> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = std::ffi::CString::new(folder.as_os_str().as_encoded_bytes()).ok()?;
    // SAFETY: all zeros is a valid statvfs.
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: a terminated path and a place for one statvfs.
    let result = unsafe { libc::statvfs(folder.as_ptr(), &mut found) };
    (result == 0).then_some(found)
}

fn available_bytes(path: &Path, place: Place) -> u64 {
    if let Place::HugePages { page_bytes } = place {
        return HugePagePool::read(page_bytes).free * page_bytes;
    }
    file_system(path).map_or(0, |found| found.f_bavail * found.f_frsize)
}

fn used_bytes(path: &Path) -> u64 {
    file_system(path).map_or(0, |found| (found.f_blocks - found.f_bfree) * found.f_frsize)
}

fn mount_point_of(path: &Path) -> Option<String> {
    let folder = path.parent()?.canonicalize().ok()?;
    let table = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    points.filter(|point| folder.starts_with(point)).max_by_key(|point| point.len()).map(str::to_owned)
}

/// The tightest memory limit of this process's control group and those above it; none where there is no limit.
fn memory_limit(membership: &Path, root: &Path) -> Option<u64> {
    let membership = std::fs::read_to_string(membership).ok()?;
    let group = membership.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let limit_of = |folder: &Path| -> Option<u64> {
        std::fs::read_to_string(root.join(folder).join("memory.max")).ok()?.trim().parse().ok()
    };
    Path::new(group).ancestors().filter_map(limit_of).min()
}

/// Of a file that need not exist.
fn place_of_folder(path: &Path) -> Place {
    Place::of(path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")))
}

/// A file that was made, and may have to go again.
struct Made {
    file: File,
    folder: Folder,
    name: OsString,
}

impl Made {
    /// On failure nothing is left behind, and what somebody else has put under the name since stays. What cannot be removed holds nothing
    /// yet, and the next attempt says what it is.
    fn take_back(self, path: &Path) {
        let _ = self.hold(path).and_then(|held| held.remove_own());
    }

    /// The file by a descriptor of its own, if it is still what its name leads to.
    fn hold(&self, path: &Path) -> io::Result<Held> {
        let held = self.folder.hold(&self.name, path)?;
        match held.is(&self.file)? {
            true => Ok(held),
            false => Err(io::Error::other("somebody has put another file in its place")),
        }
    }
}

/// Makes a file of this length, locked and reserved. On failure nothing is left behind.
fn create_file(path: &Path, length: u64, timeout: Duration) -> Result<Made, TierError> {
    create_file_by(path, length, timeout, reserve)
}

/// The same, with another way to reserve the length.
fn create_file_by(
    path: &Path,
    length: u64,
    timeout: Duration,
    reserve: impl FnOnce(&File, u64) -> io::Result<()>,
) -> Result<Made, TierError> {
    check_length(path, length)?;
    let (folder, name) = Folder::of(path).map_err(failed("look at the folder of", path))?;
    // Looked at before: a file system that has too little may first have given the file all that it had.
    let place = place_of_folder(path);
    let available = available_bytes(path, place);
    let file = folder.make_readable_file(&name, 0o600).map_err(failed("create", path))?;
    let made = Made { file, folder, name };
    // Whoever found it empty before it was locked may have removed it as one that nobody uses.
    let locked = lock(&made.file, path, timeout).and_then(|()| made.hold(path).map(drop).map_err(failed("keep", path)));
    let filled = locked.and_then(|()| {
        reserve(&made.file, length).map_err(|error| match error.raw_os_error() {
            Some(libc::ENOSPC) => TierError::NoRoom { path: path.to_owned(), length, available, place },
            Some(libc::EDQUOT) => {
                let reason = format!(
                    "the quota there does not allow the daemon {} MiB more ({error}); raise it, or choose a smaller tier by \
                     `--tier-size`, or another place by `--tier-path`",
                    length.div_ceil(1 << 20)
                );
                unusable(path, reason)
            }
            Some(libc::EOPNOTSUPP | libc::ENOSYS) => {
                let reason = format!(
                    "its file system does not reserve room for a file (fallocate: {error}), and without that an \
                     acknowledged write could meet a full file system; choose a place on ext4, XFS, Btrfs or tmpfs by \
                     `--tier-path`, or a block device"
                );
                unusable(path, reason)
            }
            Some(_) | None => failed("reserve the space of", path)(error),
        })
    });
    match filled {
        Ok(()) => Ok(made),
        Err(error) => {
            made.take_back(path);
            Err(error)
        }
    }
}

/// What an open file is, found by its path once more.
fn hold_again(path: &Path, file: &File) -> Result<Held, TierError> {
    let held = Held::of(path).map_err(failed("look at", path))?;
    match held.is(file).map_err(failed("look at", path))? {
        true => Ok(held),
        false => Err(unusable(path, "somebody has put something else in its place")),
    }
}

fn existing_length(path: &Path, file: &File, kind: FileKind) -> Result<u64, TierError> {
    let length = size_of(file, kind).map_err(failed("read the size of", path))?;
    let length = length - length % TIER_BLOCK_BYTES as u64;
    let length = length.min(u64::from(u32::MAX) * TIER_BLOCK_BYTES as u64);
    if length == 0 {
        let reason = "it is shorter than one block, so no tier was ever completed here";
        return Err(unusable(path, reason));
    }
    Ok(length)
}

/// A tier in memory that outlives the process: a file in tmpfs or hugetlbfs, mapped whole and shared.
///
/// A store into the mapping is in the file at once. Death of the process stops a thread between two instructions, and
/// what was executed before is seen by whoever maps the file after (the switch away from the dead thread is a full
/// barrier); so the order of stores in the program is the order that a later process finds, as long as the compiler
/// keeps it: that is what the release fence in [`MemoryTier::describe`] is for. Nothing here survives the host.
#[derive(Debug)]
pub struct MemoryTier {
    path: PathBuf,
    mapping: Arc<Mapping>,
    table_first: u32,
    table_blocks: u32,
    /// Carries the lock; the mapping holds the same description.
    file: File,
}

impl MemoryTier {
    /// A new tier. The path must not exist. In hugetlbfs the file is as long as its pages, maybe longer than asked for.
    pub fn create(path: &Path, length: u64, lock_timeout: Duration) -> Result<MemoryTier, TierError> {
        let place = place_of_folder(path);
        let length = place.file_bytes(length);
        // Memory of tmpfs is charged to the control group; beyond its limit the kernel does not refuse, it kills. Huge
        // pages have their own pool.
        if place == Place::Tmpfs
            && let Some(limit) = memory_limit(Path::new("/proc/self/cgroup"), Path::new("/sys/fs/cgroup"))
            && length >= limit
        {
            let (wants, limit) = (length.div_ceil(1 << 20), limit >> 20);
            let reason = format!(
                "it needs {wants} MiB and the memory limit of this control group is {limit} MiB; raise it (systemd: \
                 `MemoryMax={}M` in the unit, container: `--memory={}m`) or choose a smaller tier by `--tier-size`",
                wants + 256,
                wants + 256
            );
            return Err(unusable(path, reason));
        }
        let made = create_file(path, length, lock_timeout)?;
        let mapped = made.file.try_clone().map_err(failed("share", path)).and_then(|file| {
            let tier = MemoryTier::map(path, file, length)?;
            tier.mapping.prefault().map_err(failed("bring in the memory of", path))?;
            Ok(tier)
        });
        if mapped.is_err() {
            made.take_back(path);
        }
        mapped
    }

    /// An existing tier, as soon as nobody else has it.
    pub fn open(path: &Path, lock_timeout: Duration) -> Result<MemoryTier, TierError> {
        MemoryTier::open_held(&Held::of(path).map_err(failed("open", path))?, lock_timeout)
    }

    /// The same of what is held.
    pub fn open_held(held: &Held, lock_timeout: Duration) -> Result<MemoryTier, TierError> {
        let path = held.path();
        if held.kind().map_err(failed("open", path))? != FileKind::Regular {
            let reason = "a memory tier is a file, and this is a device".to_owned();
            return Err(unusable(path, reason));
        }
        let file = held.open(true, 0).map_err(failed("open", path))?;
        lock(&file, path, lock_timeout)?;
        let length = existing_length(path, &file, FileKind::Regular)?;
        // A sparse file would be a SIGBUS at the first store without room. One that is complete is not reserved again:
        // that walks every page.
        let metadata = file.metadata().map_err(failed("look at", path))?;
        if metadata.blocks() * 512 < length {
            reserve(&file, length).map_err(failed("reserve the space of", path))?;
        }
        MemoryTier::map(path, file, length)
    }

    fn map(path: &Path, file: File, length: u64) -> Result<MemoryTier, TierError> {
        let mapping = Mapping::shared(&file, length as usize).map_err(failed("map", path))?;
        let mapping = Arc::new(mapping);
        Ok(MemoryTier { path: path.to_owned(), mapping, table_first: 0, table_blocks: 0, file })
    }

    /// Says where the descriptor table lies; needed before [`MemoryTier::describe`].
    pub fn set_table(&mut self, first: u32, blocks: u32) {
        assert!(
            (first as usize + blocks as usize) * TIER_BLOCK_BYTES <= self.mapping.len(),
            "the table is in the tier"
        );
        self.table_first = first;
        self.table_blocks = blocks;
    }

    /// The path at which it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its file by a descriptor of its own, which neither locks it nor keeps it from being locked.
    pub fn hold(&self) -> Result<Held, TierError> {
        hold_again(&self.path, &self.file)
    }

    /// Blocks of 4096 bytes that the tier has.
    pub fn blocks(&self) -> u32 {
        (self.mapping.len() / TIER_BLOCK_BYTES) as u32
    }

    /// The whole file in memory; an arena of its payload is made from this.
    pub fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    /// Block 0 as it lies on the tier, for `Superblock::decode`.
    pub fn superblock_bytes(&self) -> Vec<u8> {
        self.scan(TierBlock(0), 1)
    }

    fn range(&self, at: TierBlock, blocks: usize) -> *mut u8 {
        let first = at.0 as usize * TIER_BLOCK_BYTES;
        assert!(first + blocks * TIER_BLOCK_BYTES <= self.mapping.len(), "blocks {at}+{blocks} lie within the tier");
        // SAFETY: asserted above.
        unsafe { self.mapping.as_ptr().add(first) }
    }

    /// Stores a descriptor. Everything stored before (payload, earlier descriptors) is there when this one is.
    pub fn describe(&mut self, index: u32, bytes: &[u8; DESCRIPTOR_BYTES]) {
        assert!(index < self.table_blocks * DESCRIPTORS_PER_BLOCK, "descriptor {index} lies within the table");
        let table = self.range(TierBlock(self.table_first), self.table_blocks as usize);
        let store = |i: usize, word: u64| {
            // SAFETY: within the table (asserted), aligned to 8 because the mapping is aligned to pages and a
            // descriptor to 32; only this thread stores to the table.
            let place = unsafe { AtomicU64::from_ptr(table.add(index as usize * DESCRIPTOR_BYTES + i * 8).cast()) };
            place.store(word, Ordering::Relaxed);
            fence(Ordering::Release);
        };
        let word = |i: usize| u64::from_ne_bytes(bytes[8 * i..8 * i + 8].try_into().expect("eight bytes"));
        fence(Ordering::Release);
        // A kill between two of these leaves the mark, which reads as "nothing here" (docs/format.md).
        store(0, DESCRIPTOR_UNFINISHED);
        store(1, word(1));
        store(2, word(2));
        store(3, word(3));
        store(0, word(0));
    }

    /// Stores metadata and payload into neighbouring blocks. A frame that is that very block stays.
    pub fn write<'a>(&mut self, at: TierBlock, head: &[u8], frames: impl ExactSizeIterator<Item = &'a [u8]>) {
        assert!(head.len().is_multiple_of(TIER_BLOCK_BYTES), "metadata is whole blocks");
        let head_blocks = head.len() / TIER_BLOCK_BYTES;
        let mut place = self.range(at, head_blocks + frames.len());
        // SAFETY: the range was checked; metadata of the caller does not overlap the mapping.
        unsafe { std::ptr::copy_nonoverlapping(head.as_ptr(), place, head.len()) };
        // SAFETY: still within the range, or one past its end.
        place = unsafe { place.add(head.len()) };
        for frame in frames {
            assert_eq!(frame.len(), TIER_BLOCK_BYTES);
            if !std::ptr::eq(frame.as_ptr(), place) {
                // SAFETY: within the range; frames and blocks are aligned alike, so two that are not the same do not
                // overlap.
                unsafe { std::ptr::copy_nonoverlapping(frame.as_ptr(), place, TIER_BLOCK_BYTES) };
            }
            // SAFETY: still within the range, or one past its end.
            place = unsafe { place.add(TIER_BLOCK_BYTES) };
        }
        fence(Ordering::Release);
    }

    /// Copies so many blocks of metadata out, from this one on.
    pub fn scan(&self, at: TierBlock, blocks: u32) -> Vec<u8> {
        let length = blocks as usize * TIER_BLOCK_BYTES;
        let mut bytes = vec![0u8; length];
        // SAFETY: the range was checked, and the vector is not in the mapping.
        unsafe { std::ptr::copy_nonoverlapping(self.range(at, blocks as usize), bytes.as_mut_ptr(), length) };
        bytes
    }

    /// Copies one block to a frame's address.
    pub(crate) fn read(&self, at: TierBlock, frame: *mut u8) {
        // SAFETY: the block was checked; the frame has 4 KiB, and `copy` allows it to be the block itself.
        unsafe { std::ptr::copy(self.range(at, 1), frame, TIER_BLOCK_BYTES) };
    }
}

/// A tier on stable media: a file or block device, by O_DIRECT where that works.
#[derive(Debug)]
pub struct FlashTier {
    file: Arc<DeviceFile>,
    blocks: u32,
    heads: Vec<AlignedBuffer>,
}

impl FlashTier {
    /// A new tier of this length in a new file, or on an empty block device that is at least so long. A file is filled with
    /// zeros once unless `prewrite` is off: that halves the cost of a sync from then on, because no write changes
    /// metadata any more. `progress` hears the bytes that are filled.
    pub fn create(
        path: &Path,
        length: u64,
        prewrite: bool,
        lock_timeout: Duration,
        mut progress: impl FnMut(u64),
    ) -> Result<FlashTier, TierError> {
        check_length(path, length)?;
        let there = Held::found(path).map_err(failed("look at", path))?;
        if let Some(held) = there.filter(|held| held.kind().is_ok_and(|kind| kind == FileKind::Block)) {
            let mut tier = FlashTier::open_held(&held, lock_timeout)?;
            if u64::from(tier.blocks) * (TIER_BLOCK_BYTES as u64) < length {
                let has = u64::from(tier.blocks) * TIER_BLOCK_BYTES as u64;
                let reason =
                    format!("the device has {has} bytes and not the {length} asked for; choose a smaller tier");
                return Err(unusable(path, reason));
            }
            // File systems, partition tables, RAID and LVM labels, and tiers: all leave traces within the first MiB.
            let mut head = AlignedBuffer::new(PREWRITE_BYTES.min(length as usize));
            tier.file.read_now(0, &mut head).map_err(failed("read", path))?;
            if head.iter().any(|&byte| byte != 0) {
                let reason = format!(
                    "the device is not empty; if nothing on it is needed any more, say so by `dd if=/dev/zero of={} \
                     bs=1M count=1 conv=fsync`",
                    path.display()
                );
                return Err(unusable(path, reason));
            }
            tier.blocks = (length / TIER_BLOCK_BYTES as u64) as u32;
            return Ok(tier);
        }
        let made = create_file(path, length, lock_timeout)?;
        let held = match made.hold(path).map_err(failed("open", path)) {
            Ok(held) => held,
            Err(error) => {
                made.take_back(path);
                return Err(error);
            }
        };
        // The lock moves to the description that will carry the I/O; nobody knows of the new file meanwhile, and whoever finds
        // it by chance makes us wait, not fail.
        drop(made);
        let mut finish = || {
            let tier = FlashTier::open_held(&held, lock_timeout)?;
            held.still_has_its_name().map_err(failed("keep", path))?;
            if prewrite {
                let zeros = AlignedBuffer::new(PREWRITE_BYTES.min(length as usize));
                let mut done = 0;
                while done < length {
                    let piece = (length - done).min(zeros.len() as u64);
                    let write = if piece == zeros.len() as u64 {
                        tier.file.write_now(done, &zeros)
                    } else {
                        tier.file.write_now(done, &AlignedBuffer::new(piece as usize))
                    };
                    write.map_err(failed("fill", path))?;
                    done += piece;
                    progress(done);
                }
            }
            tier.file.file().sync_all().map_err(failed("sync", path))?;
            held.folder().sync().map_err(failed("sync the folder of", path))?;
            Ok(tier)
        };
        let tier = finish();
        if tier.is_err() {
            // What cannot be removed holds nothing yet, and the next attempt says what it is.
            let _ = held.remove();
        }
        tier
    }

    /// An existing tier, as soon as nobody else has it.
    pub fn open(path: &Path, lock_timeout: Duration) -> Result<FlashTier, TierError> {
        FlashTier::open_held(&Held::of(path).map_err(failed("open", path))?, lock_timeout)
    }

    /// The same of what is held.
    pub fn open_held(held: &Held, lock_timeout: Duration) -> Result<FlashTier, TierError> {
        let path = held.path();
        // These uses do not end by themselves: nothing to wait for.
        if let Some(user) = crate::backing::user_of(held) {
            let reason = format!("it is {user}; end that use, or choose another place");
            return Err(unusable(path, reason));
        }
        let start = std::time::Instant::now();
        let file = loop {
            match DeviceFile::open_held(held, true, None) {
                // The claim of a block device ends, like a lock, with the last request of a killed process.
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                    if start.elapsed() >= lock_timeout {
                        let reason = "the device is claimed by a mount, swap, a device mapper or RAID device, or another \
                                      process; end that use, or choose another device";
                        return Err(unusable(path, reason));
                    }
                    std::thread::sleep(Duration::from_millis(10));
                }
                opened => break opened.map_err(failed("open", path))?,
            }
        };
        lock(file.file(), path, lock_timeout.saturating_sub(start.elapsed()))?;
        let length = existing_length(path, file.file(), file.kind())?;
        let blocks = (length / TIER_BLOCK_BYTES as u64) as u32;
        Ok(FlashTier { file: Arc::new(file), blocks, heads: Vec::new() })
    }

    /// The path at which it was opened.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Blocks of 4096 bytes that the tier has.
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// How the bytes reach the medium, and why not directly.
    pub fn access(&self) -> &Access {
        self.file.access()
    }

    /// Its file or device by a descriptor of its own, which neither locks it nor keeps it from being locked.
    pub fn hold(&self) -> Result<Held, TierError> {
        hold_again(self.path(), self.file.file())
    }

    /// The file or block device that it lies on.
    pub fn file(&self) -> &Arc<DeviceFile> {
        &self.file
    }

    /// Block 0 as it lies on the tier, for `Superblock::decode`.
    pub fn superblock_bytes(&self) -> io::Result<Vec<u8>> {
        let mut buffer = AlignedBuffer::new(TIER_BLOCK_BYTES);
        self.file.read_now(0, &mut buffer)?;
        Ok(buffer.to_vec())
    }

    /// Where a run of blocks begins; it must lie within the tier.
    pub(crate) fn offset(&self, at: TierBlock, blocks: u64) -> u64 {
        assert!(u64::from(at.0) + blocks <= u64::from(self.blocks), "blocks {at}+{blocks} lie within the tier");
        u64::from(at.0) * TIER_BLOCK_BYTES as u64
    }

    /// An aligned buffer of this length with any content.
    pub(crate) fn take_buffer(&mut self, length: usize) -> AlignedBuffer {
        match self.heads.iter().rposition(|buffer| buffer.capacity() >= length) {
            Some(found) => {
                let mut buffer = self.heads.swap_remove(found);
                buffer.set_len(length);
                buffer
            }
            None => AlignedBuffer::new(length),
        }
    }

    /// Keeps a small buffer for the next time.
    pub(crate) fn give_buffer(&mut self, buffer: AlignedBuffer) {
        if self.heads.len() < HEADS_KEPT_MAX && buffer.capacity() <= 4 * TIER_BLOCK_BYTES {
            self.heads.push(buffer);
        }
    }
}

/// A tier of either kind.
#[derive(Debug)]
pub enum Tier {
    /// In memory: what it holds does not survive a loss of power.
    Memory(MemoryTier),
    /// On flash: what was synced survives a loss of power.
    Flash(FlashTier),
}

impl Tier {
    /// The path at which it was opened.
    pub fn path(&self) -> &Path {
        match self {
            Tier::Memory(tier) => tier.path(),
            Tier::Flash(tier) => tier.path(),
        }
    }

    /// Block 0 as it lies on the tier, for `Superblock::decode`.
    pub fn superblock_bytes(&self) -> io::Result<Vec<u8>> {
        match self {
            Tier::Memory(tier) => Ok(tier.superblock_bytes()),
            Tier::Flash(tier) => tier.superblock_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_error::FileProblem;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_memory_tier_is_found_again_as_it_was_left() {
        let folder = tempfile::tempdir_in("/dev/shm").expect("the tests need a tmpfs at /dev/shm");
        let path = folder.path().join("tier");
        let mut tier = MemoryTier::create(&path, 64 * 4096, SECOND).unwrap();
        tier.set_table(3, 2);
        tier.write(TierBlock(0), &[7; 4096], [[8u8; 4096].as_slice()].into_iter());
        tier.describe(129, &[9; 32]);
        drop(tier);
        let tier = MemoryTier::open(&path, SECOND).unwrap();
        assert_eq!(tier.superblock_bytes(), [7; 4096]);
        assert_eq!(tier.scan(TierBlock(1), 1), [8; 4096]);
        let table = tier.scan(TierBlock(3), 2);
        assert_eq!(table[129 * 32..130 * 32], [9; 32]);
        assert!(table[..129 * 32].iter().chain(&table[130 * 32..]).all(|&b| b == 0));
    }

    #[test]
    fn a_memory_tier_with_holes_is_reserved_again() {
        let folder = tempfile::tempdir_in("/dev/shm").expect("the tests need a tmpfs at /dev/shm");
        let path = folder.path().join("tier");
        File::create(&path).unwrap().set_len(64 * 4096).unwrap();
        let tier = MemoryTier::open(&path, SECOND).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().blocks() * 512, 64 * 4096);
        assert_eq!(tier.blocks(), 64);
    }

    #[test]
    fn a_second_opener_waits_and_is_told_who_has_it() {
        let folder = tempfile::tempdir_in("/dev/shm").expect("the tests need a tmpfs at /dev/shm");
        let path = folder.path().join("tier");
        let tier = MemoryTier::create(&path, 64 * 4096, SECOND).unwrap();
        let error = MemoryTier::open(&path, Duration::from_millis(50)).unwrap_err();
        assert!(matches!(error, TierError::File(FileError { problem: FileProblem::HeldBy { .. }, .. })));
        assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
        let arena = crate::arena::Arena::within(tier.mapping().clone(), 4096, 4);
        drop(tier);
        // The arena still maps the file, so it could still be written to.
        assert!(MemoryTier::open(&path, Duration::from_millis(50)).is_err());
        drop(arena);
        MemoryTier::open(&path, SECOND).unwrap();
    }

    #[test]
    fn a_flash_tier_is_prewritten_and_locked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tier");
        let length = (PREWRITE_BYTES + 3 * 4096) as u64;
        let mut heard = Vec::new();
        let tier = FlashTier::create(&path, length, true, SECOND, |done| heard.push(done)).unwrap();
        assert_eq!(heard, [PREWRITE_BYTES as u64, length]);
        assert_eq!(u64::from(tier.blocks()), length / 4096);
        assert!(std::fs::read(&path).unwrap().iter().all(|&b| b == 0));
        assert!(matches!(
            FlashTier::open(&path, Duration::ZERO).unwrap_err(),
            TierError::File(FileError { problem: FileProblem::HeldBy { .. }, .. })
        ));
        drop(tier);
        assert_eq!(FlashTier::open(&path, SECOND).unwrap().superblock_bytes().unwrap(), [0; 4096]);
    }

    #[test]
    fn a_tier_larger_than_its_tmpfs_is_refused_with_the_cure() {
        let folder = tempfile::tempdir_in("/dev/shm").expect("the tests need a tmpfs at /dev/shm");
        let path = folder.path().join("tier");
        let room = file_system(&path).unwrap();
        // One block more than the whole mount: tmpfs refuses that before it takes any memory.
        let length = (room.f_blocks + 1) * room.f_frsize;
        let error = match create_file(&path, length, SECOND) {
            Err(error) => error,
            Ok(_) => panic!("reserved more than the mount has"),
        };
        assert!(matches!(error, TierError::NoRoom { place: Place::Tmpfs, .. }), "{error}");
        assert!(error.to_string().contains("mount -o remount,size="), "{error}");
        assert!(error.to_string().contains("M /dev/shm`"), "{error}");
        assert!(!path.exists());
    }

    #[test]
    fn the_room_that_is_told_is_that_before_the_tier_took_any() {
        let folder = tempfile::tempdir_in("/dev/shm").expect("the tests need a tmpfs at /dev/shm");
        let path = folder.path().join("tier");
        let takes = 64 << 20;
        let before = available_bytes(&path, Place::Tmpfs);
        // As ext4 does it: what there is goes to the file, and then there is no more.
        let made = create_file_by(&path, 1 << 40, SECOND, |file, _| {
            reserve(file, takes)?;
            Err(io::Error::from_raw_os_error(libc::ENOSPC))
        });
        // Others use the tmpfs as well, meanwhile.
        let least = before - takes / 2;
        let told = made.err();
        assert!(
            matches!(&told, Some(TierError::NoRoom { available, .. }) if *available >= least),
            "{told:?} of {before}"
        );
        assert!(!path.exists());
    }

    #[test]
    fn a_refusal_for_another_reason_than_free_room_does_not_name_free_room_as_what_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tier");
        for (refusal, words) in [(libc::ENOSPC, "although"), (libc::EDQUOT, "the quota there")] {
            let made = create_file_by(&path, 1 << 12, SECOND, |_, _| Err(io::Error::from_raw_os_error(refusal)));
            let told = made.err().expect("it was refused").to_string();
            assert!(told.contains(words) && !told.contains("has room for"), "{told}");
            assert!(!path.exists());
        }
    }

    #[test]
    fn what_somebody_has_put_in_the_place_of_a_file_that_was_not_finished_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tier");
        let made = create_file_by(&path, 1 << 20, SECOND, |_, _| {
            std::fs::rename(&path, folder.path().join("aside"))?;
            std::fs::write(&path, "another's")?;
            Err(io::Error::from_raw_os_error(libc::EIO))
        });
        assert!(made.is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"another's");
    }

    #[test]
    fn a_file_system_that_reserves_nothing_is_told_with_what_to_choose() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tier");
        for refusal in [libc::EOPNOTSUPP, libc::ENOSYS] {
            let made = create_file_by(&path, 1 << 20, SECOND, |_, _| Err(io::Error::from_raw_os_error(refusal)));
            let told = made.err().expect("there is no room that is sure").to_string();
            for words in ["cannot use the tier", path.to_str().unwrap(), "fallocate", "ext4", "`--tier-path`"] {
                assert!(told.contains(words), "no {words}: {told}");
            }
            assert!(!path.exists());
        }
    }

    #[test]
    fn the_tightest_limit_of_the_control_groups_counts() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::fs::write(root.join("membership"), "1:name=x:/y\n0::/a/b\n").unwrap();
        let limit = || memory_limit(&root.join("membership"), root);
        assert_eq!(limit(), None);
        std::fs::write(root.join("a/b/memory.max"), "max\n").unwrap();
        assert_eq!(limit(), None);
        std::fs::write(root.join("a/memory.max"), "1048576\n").unwrap();
        std::fs::write(root.join("memory.max"), "4194304\n").unwrap();
        assert_eq!(limit(), Some(1 << 20));
    }

    #[test]
    fn lengths_that_are_no_blocks_are_refused_untouched() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tier");
        for length in [0, 4095, 4097] {
            assert!(FlashTier::create(&path, length, false, SECOND, |_| {}).is_err());
            assert!(MemoryTier::create(&path, length, SECOND).is_err());
            assert!(!path.exists());
        }
        std::fs::write(&path, b"short").unwrap();
        assert!(FlashTier::open(&path, SECOND).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"short");
    }
}
