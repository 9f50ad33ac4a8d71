//! The journal beside an image: a file into which a batch of barrier groups goes whole before it goes to the backing.
//!
//! Core decides what is written where ([`Effect::JournalWrite`](forebay_core::api::Effect::JournalWrite)); this module
//! makes, opens, finds again and removes the file, and [`replay()`] brings a batch that was left behind into the backing.
//! `docs/format.md` draws the file.
//!
//! Invariants:
//! - A journal file that has its final name is whole: written with zeros over its whole length, named durably, with a
//!   sealed first block that says whose it is and how long. One that was cut off later is recognised, and refused.
//! - All its I/O goes through one locked file description, as for the backing.
//! - It lies on the medium of the image, so its operations pass the same `slow:` and `faulty:` wrappers and count in
//!   the same statistics ([`crate::VolumeIo`] sees to that).
//! - A journal that may hold a batch is neither used nor removed before it was replayed.
//!
//! Contract with the node, for a backing that is a regular file:
//! 1. **Before** core hears `BackingReady`, and before a new tier is formatted: lock the backing, and if there is a file at
//!    [`path_of`] the image, replay it. An error means: do not touch the backing.
//! 2. If the tier is there: [`Replay::begin`], with what its checkpoint says as [`ReplayRequest::tier`];
//!    [`Replay::apply`]; tell core [`ReplayReport::in_backing_through`], because the backing then has every record up to
//!    there, and a group below it sent again by itself would take the backing back; wait until core has recorded that
//!    in the tier; [`Replay::erase`]. If the tier is lost: [`replay()`].
//! 3. The journal that `erase` has opened, or [`Journal::create`] where there was none, goes to `VolumeIo`, its number of
//!    blocks to core.
//! 4. After a stop with drain core has erased the journal: [`remove`] it, so that whoever uses the image next without
//!    Forebay does not find one. After any other end it stays.
//!
//! Left to others: what a batch contains and when it may be erased (core), a journal for block devices and NBD
//! backings, which have no place beside them (there is none: they are destaged group by group).

mod replay;

pub use replay::{
    AreaState, BatchFound, Replay, ReplayReport, ReplayRequest, TierWord, Verdict, copy_into, inspect, replay,
};

use crate::backing::reopening::{Opening, look_at};
use crate::file::{Access, DeviceFile, reserve};
use crate::file_error::FileError;
use crate::folder::{self, Folder, Held};
use crate::lock::{LockAttempt, LockRange, await_lock, unlock};
use crate::memory::AlignedBuffer;
use forebay_core::format::{JOURNAL_VERSION, JournalBatch, TIER_BLOCK_BYTES, crc32c};
use forebay_core::types::Term;
use replay::{JournalReader, read_head};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

const BLOCK: u64 = TIER_BLOCK_BYTES as u64;
/// Added to the name of the image.
pub const NAME_SUFFIX: &str = ".forebay-journal";
/// Added to the name of the journal while it is being made.
const UNFINISHED_SUFFIX: &str = ".new";
/// Area of a large volume's journal, by default: a batch of 16,000 blocks, beyond which merging gains little.
const AREA_BYTES_DEFAULT_MAX: u64 = 64 << 20;
/// Area of a small volume's journal, by default.
const AREA_BYTES_DEFAULT_MIN: u64 = 4 << 20;
/// Least blocks of one area: a head and a payload.
const AREA_BLOCKS_MIN: u64 = 2;
/// Most blocks of one area: 4 GiB. Core counts in `u32`, and nobody wants to replay more.
const AREA_BLOCKS_MAX: u64 = 1 << 20;
/// Blocks of the file before the first area.
const SUPERBLOCK_BLOCKS: u64 = 1;
/// How long whoever has a journal locked that is to be removed is awaited.
const REMOVAL_LOCK_WAIT: Duration = Duration::from_secs(1);
const SUPERBLOCK_MAGIC: [u8; 8] = *b"FBJFILE\0";

/// What errors call it.
const WHAT: &str = "the journal";

/// Why a journal cannot be used, replayed or removed. Unless it says so, nothing was changed.
#[derive(Debug)]
pub enum JournalError {
    /// The file system has no room for the whole journal.
    NoRoom {
        /// The journal that needs the room.
        path: PathBuf,
        /// Bytes that the whole journal takes.
        length: u64,
    },
    /// It was written for another volume.
    OtherVolume {
        /// The journal that was refused.
        path: PathBuf,
        /// Identity of the volume that it was written for.
        found: [u8; 16],
        /// Identity of the volume that it should be for.
        expected: [u8; 16],
    },
    /// It was written by a newer version.
    Newer {
        /// The journal that was refused.
        path: PathBuf,
    },
    /// It holds a batch of an owner that the tier does not know.
    LaterTerm {
        /// The journal that was refused.
        path: PathBuf,
        /// Term of the batch.
        found: Term,
        /// Term of the last owner that the tier knows.
        tier: Term,
    },
    /// It may hold a batch that is not in the backing.
    NotReplayed {
        /// The journal that was not replayed.
        path: PathBuf,
    },
    /// There is one already.
    Exists {
        /// The journal that is there.
        path: PathBuf,
    },
    /// It is not a whole journal, or does not fit the image, or the image or it cannot be read or written.
    File(FileError),
}

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JournalError::NoRoom { path, length } => write!(
                f,
                "cannot reserve {} MiB for the journal {}: the file system of the image is full; free some space, or \
                 do without a journal",
                length.div_ceil(1 << 20),
                path.display()
            ),
            JournalError::OtherVolume { path, found, expected } => write!(
                f,
                "refused to use the journal {}: it belongs to volume {} and not to volume {}; it may hold the only \
                 copy of writes to this image, so serve that volume once more, or move the journal away if that volume \
                 is given up",
                path.display(),
                Uuid(found),
                Uuid(expected)
            ),
            JournalError::Newer { path } => write!(
                f,
                "refused to use the journal {}: it was written by a newer version of Forebay; serve the volume with \
                 that version and stop it with a drain",
                path.display()
            ),
            JournalError::LaterTerm { path, found, tier } => write!(
                f,
                "the journal {0} holds a batch of term {found}, and the tier is of term {tier}: the tier is an older copy, \
                 and what was written after it was made is not in it. Put the newest tier and marker back; if that tier is \
                 lost, move this one away and accept the loss with --adopt-changed-backing, which replays the journal, or \
                 make a new image by `forebay salvage {0} --to NEW`",
                path.display()
            ),
            JournalError::NotReplayed { path } => write!(
                f,
                "refused to reuse or remove the journal {}: it may hold writes that are not in the image yet; serve \
                 the volume, or replay the journal by `forebay salvage`",
                path.display()
            ),
            JournalError::Exists { path } => write!(
                f,
                "cannot make the journal {}: there is a file of that name; it is replayed and removed by serving the \
                 volume",
                path.display()
            ),
            JournalError::File(error) => error.fmt(f),
        }
    }
}

// What a system call said is part of the text: given as a source as well, it would be printed twice.
impl std::error::Error for JournalError {}

/// Sixteen bytes as people write an identity.
pub struct Uuid<'a>(pub &'a [u8; 16]);

impl fmt::Display for Uuid<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            write!(f, "{}{byte:02x}", if matches!(i, 4 | 6 | 8 | 10) { "-" } else { "" })?;
        }
        Ok(())
    }
}

fn failed(attempted: &'static str, path: &Path) -> impl FnOnce(io::Error) -> JournalError {
    failed_at(WHAT, attempted, path)
}

/// Of the image, or its folder.
fn failed_at(what: &'static str, attempted: &'static str, path: &Path) -> impl FnOnce(io::Error) -> JournalError {
    let path = path.to_owned();
    move |error| JournalError::File(FileError::failed(what, &path, attempted, error))
}

fn unusable(path: &Path, reason: impl Into<String>) -> JournalError {
    JournalError::File(FileError::unusable(WHAT, path, reason))
}

/// Where the journal of an image lies: beside the file itself, whatever links lead to it, so that it is found by
/// every one of them that no other user can have put there. The image must exist, and be a regular file. Of an open one the place is
/// [`beside`] where it was opened, whatever its path leads to by now.
pub fn path_of(image: &Path) -> io::Result<PathBuf> {
    Ok(beside(&Held::of(image)?.own_path()?))
}

/// The same of an image whose own path ([`DeviceFile::own_path`]) is known.
pub fn beside(own_path: &Path) -> PathBuf {
    let mut path = own_path.as_os_str().to_owned();
    path.push(NAME_SUFFIX);
    path.into()
}

/// Whether a file begins like a journal, whatever follows.
pub fn is_journal(path: &Path) -> io::Result<bool> {
    let mut magic = [0; SUPERBLOCK_MAGIC.len()];
    match io::Read::read_exact(&mut folder::open_file(path)?, &mut magic) {
        Ok(()) => Ok(magic == SUPERBLOCK_MAGIC),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// Bytes of both areas for a volume of this size, where the operator does not say.
pub fn areas_bytes_default(volume_bytes: u64) -> u64 {
    let area = (volume_bytes / 16).clamp(AREA_BYTES_DEFAULT_MIN, AREA_BYTES_DEFAULT_MAX);
    2 * (area - area % BLOCK)
}

/// Whether a volume may be served beside the journal at this place, found out without changing anything: how many blocks
/// its areas have, or none if there is no journal. A journal of another volume is as good as none if it holds nothing.
/// `tier_term`: that of the tier's checkpoint, where there is a tier.
pub fn check(path: &Path, volume: &[u8; 16], tier_term: Option<Term>) -> Result<Option<u32>, JournalError> {
    let file = match folder::open_file(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed("open", path)(error)),
    };
    let device = DeviceFile::buffered(file, path, "it is only looked at").map_err(failed("look at", path))?;
    let superblock = read_superblock(&device)?;
    let area_blocks = superblock.area_blocks;
    if superblock.volume != *volume {
        return check_erased(&device, area_blocks)
            .map(|()| None)
            .or_else(|_| require_owner(path, &superblock, volume).map(|()| None));
    }
    let mut journal = JournalReader { file: Arc::new(device), wrappers: None };
    for area in [0, area_blocks] {
        read_head(&mut journal, volume, area, area_blocks, tier_term)?;
    }
    Ok(Some(2 * area_blocks))
}

/// Removes a volume's journal, durably and under its lock; one that may hold a batch is refused. Nothing to do if there is none, or
/// another volume's that is empty.
pub fn remove(path: &Path, volume: &[u8; 16]) -> Result<(), JournalError> {
    remove_erased(path, Some(volume))
}

/// The same, whichever volume has left it. The lock of the image beside it must be held: nobody else is to use it there.
pub fn remove_left_empty(path: &Path) -> Result<(), JournalError> {
    remove_erased(path, None)
}

fn remove_erased(path: &Path, volume: Option<&[u8; 16]>) -> Result<(), JournalError> {
    let Some(held) = Held::found(path).map_err(failed("open", path))? else { return Ok(()) };
    let file = held.open(true, 0).map_err(failed("open", path))?;
    let device = DeviceFile::buffered(file, path, "it is only looked at").map_err(failed("look at", path))?;
    let superblock = read_superblock(&device)?;
    if let Some(expected) = volume.filter(|volume| **volume != superblock.volume) {
        return check_erased(&device, superblock.area_blocks).map_err(|_| JournalError::OtherVolume {
            path: path.to_owned(),
            found: superblock.volume,
            expected: *expected,
        });
    }
    lock_for(&device, REMOVAL_LOCK_WAIT)?;
    check_erased(&device, superblock.area_blocks)?;
    held.remove().map_err(failed("remove", path))
}

/// First block of the file: whose journal it is, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct JournalSuperblock {
    volume: [u8; 16],
    area_blocks: u32,
}

/// Why a first block is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NotASuperblock {
    Newer,
    Broken(&'static str),
}

impl JournalSuperblock {
    fn checksum(volume: &[u8; 16], block: &[u8]) -> u32 {
        let mut seed = [0u8; 24];
        seed[..16].copy_from_slice(volume);
        crc32c(block) ^ crc32c(&seed)
    }

    fn encode(&self) -> AlignedBuffer {
        let mut b = AlignedBuffer::new(TIER_BLOCK_BYTES);
        b[..8].copy_from_slice(&SUPERBLOCK_MAGIC);
        b[8..10].copy_from_slice(&JOURNAL_VERSION.to_le_bytes());
        b[16..32].copy_from_slice(&self.volume);
        b[32..36].copy_from_slice(&self.area_blocks.to_le_bytes());
        let sum = JournalSuperblock::checksum(&self.volume, &b);
        b[12..16].copy_from_slice(&sum.to_le_bytes());
        b
    }

    fn decode(b: &[u8]) -> Result<JournalSuperblock, NotASuperblock> {
        if b.len() != TIER_BLOCK_BYTES || b[..8] != SUPERBLOCK_MAGIC {
            return Err(NotASuperblock::Broken("it does not begin like a journal of Forebay"));
        }
        let u32_at = |at: usize| u32::from_le_bytes(b[at..at + 4].try_into().expect("four bytes"));
        if u16::from_le_bytes([b[8], b[9]]) > JOURNAL_VERSION {
            return Err(NotASuperblock::Newer);
        }
        let volume: [u8; 16] = b[16..32].try_into().expect("sixteen bytes");
        let mut unsealed = b.to_vec();
        unsealed[12..16].fill(0);
        if JournalSuperblock::checksum(&volume, &unsealed) != u32_at(12) {
            return Err(NotASuperblock::Broken("its first block is damaged"));
        }
        let area_blocks = u32_at(32);
        if !(AREA_BLOCKS_MIN..=AREA_BLOCKS_MAX).contains(&u64::from(area_blocks)) {
            return Err(NotASuperblock::Broken("its first block says an impossible length"));
        }
        Ok(JournalSuperblock { volume, area_blocks })
    }

    fn file_bytes(&self) -> u64 {
        (SUPERBLOCK_BLOCKS + 2 * u64::from(self.area_blocks)) * BLOCK
    }
}

/// What to do about a journal that cannot be read.
const IF_BROKEN: &str = "if the volume's tier is there and whole, nothing in the journal is needed and it may be moved \
                         away; without the tier the image may be in the middle of a batch: restore it from a backup";

/// The first block of an open journal, and that the file is as long as it says.
fn read_superblock(device: &DeviceFile) -> Result<JournalSuperblock, JournalError> {
    let path = device.path();
    let length = device.size().map_err(failed("read the size of", path))?;
    let mut block = AlignedBuffer::new(TIER_BLOCK_BYTES);
    device.read_now(0, &mut block).map_err(failed("read", path))?;
    let superblock = JournalSuperblock::decode(&block).map_err(|why| match why {
        NotASuperblock::Newer => JournalError::Newer { path: path.to_owned() },
        NotASuperblock::Broken(what) => unusable(path, format!("{what}; {IF_BROKEN}")),
    })?;
    if length != superblock.file_bytes() {
        let made = superblock.file_bytes();
        return Err(unusable(path, format!("it has {length} bytes and was made with {made}; {IF_BROKEN}")));
    }
    Ok(superblock)
}

/// Byte of the file at which a block of the areas lies.
fn byte_of(block: u64) -> u64 {
    (SUPERBLOCK_BLOCKS + block) * BLOCK
}

/// Both areas begin with a block of zeros: no batch can be found here.
fn check_erased(device: &DeviceFile, area_blocks: u32) -> Result<(), JournalError> {
    for area in [0, area_blocks] {
        let mut block = AlignedBuffer::new(TIER_BLOCK_BYTES);
        device.read_now(byte_of(area.into()), &mut block).map_err(failed("read", device.path()))?;
        if block.iter().any(|&byte| byte != 0) {
            return Err(JournalError::NotReplayed { path: device.path().to_owned() });
        }
    }
    Ok(())
}

/// Refuses a journal that was written for another volume.
fn require_owner(path: &Path, superblock: &JournalSuperblock, volume: &[u8; 16]) -> Result<(), JournalError> {
    if superblock.volume == *volume {
        return Ok(());
    }
    let (found, expected) = (superblock.volume, *volume);
    Err(JournalError::OtherVolume { path: path.to_owned(), found, expected })
}

/// Opens a journal for its I/O, as soon as nobody else has it.
fn open_locked(path: &Path, lock_timeout: Duration) -> Result<DeviceFile, JournalError> {
    let device = DeviceFile::open(path, false).map_err(failed("open", path))?;
    lock_for(&device, lock_timeout)?;
    Ok(device)
}

fn lock_for(device: &DeviceFile, timeout: Duration) -> Result<(), JournalError> {
    let path = device.path();
    match await_lock(device.file(), timeout).map_err(failed("lock", path))? {
        LockAttempt::Locked => Ok(()),
        LockAttempt::HeldBy(holder) => Err(JournalError::File(FileError::held_by(WHAT, path, holder, timeout))),
    }
}

/// An open journal that holds nothing.
#[derive(Debug)]
pub struct Journal {
    file: Arc<DeviceFile>,
    blocks: u32,
}

impl Journal {
    /// Makes the journal of a volume, with two areas of `areas_bytes` together, all of it reserved and durable. The
    /// image's lock must be held: nobody else makes this file then, and what an interrupted attempt left may go.
    pub fn create(
        path: &Path,
        volume: &[u8; 16],
        areas_bytes: u64,
        lock_timeout: Duration,
    ) -> Result<Journal, JournalError> {
        let area_blocks = areas_bytes / 2 / BLOCK;
        if !areas_bytes.is_multiple_of(2 * BLOCK) || !(AREA_BLOCKS_MIN..=AREA_BLOCKS_MAX).contains(&area_blocks) {
            let reason = format!(
                "it cannot be made with {areas_bytes} bytes: both areas together are a multiple of 8192 bytes, from \
                 16384 to 8 GiB"
            );
            return Err(unusable(path, reason));
        }
        let (folder, name) = Folder::of(path).map_err(failed("look at the folder of", path))?;
        if folder.has(&name) {
            return Err(JournalError::Exists { path: path.to_owned() });
        }
        let superblock = JournalSuperblock { volume: *volume, area_blocks: area_blocks as u32 };
        let mut unfinished = name.clone();
        unfinished.push(UNFINISHED_SUFFIX);
        let _ = folder.remove(&unfinished);
        let made = folder
            .make_readable_file(&unfinished, 0o600)
            .and_then(|file| write_new(&file, path, &superblock))
            .and_then(|()| folder.rename(&unfinished, &name))
            .and_then(|()| folder.sync());
        if let Err(error) = made {
            let _ = folder.remove(&unfinished);
            return Err(match error.raw_os_error() {
                Some(libc::ENOSPC | libc::EDQUOT) => {
                    JournalError::NoRoom { path: path.to_owned(), length: superblock.file_bytes() }
                }
                Some(_) | None => failed("create", path)(error),
            });
        }
        Journal::open(path, volume, lock_timeout)
    }

    /// The journal that an earlier process has left, after [`replay()`].
    pub fn open(path: &Path, volume: &[u8; 16], lock_timeout: Duration) -> Result<Journal, JournalError> {
        let device = open_locked(path, lock_timeout)?;
        let superblock = read_superblock(&device)?;
        require_owner(path, &superblock, volume)?;
        check_erased(&device, superblock.area_blocks)?;
        Ok(Journal { file: Arc::new(device), blocks: 2 * superblock.area_blocks })
    }

    /// The same open journal, with the same lock.
    pub fn share(&self) -> Journal {
        Journal { file: self.file.clone(), blocks: self.blocks }
    }

    /// Whether it can be read by its opening. Takes as long as its server does.
    pub fn look(&self) -> Opening {
        look_at(&self.file)
    }

    /// Opens the same file anew, without its lock. What it holds is not looked at, for whoever goes on with it knows that; so another
    /// file at its path is refused, whatever it says of itself.
    pub fn opened_anew(&self, volume: &[u8; 16]) -> Result<Journal, JournalError> {
        let path = self.path();
        let device = DeviceFile::open(path, false).map_err(failed("open", path))?;
        let superblock = read_superblock(&device)?;
        require_owner(path, &superblock, volume)?;
        let anew = Journal { file: Arc::new(device), blocks: 2 * superblock.area_blocks };
        if anew.file.numbers() != self.file.numbers() || anew.blocks != self.blocks {
            return Err(unusable(path, "another file is at its path than the journal that was open; put that back"));
        }
        Ok(anew)
    }

    /// Gives its lock to another opening of the same file. Nothing may be under way by this one, and nothing is written by it any
    /// more.
    pub fn hand_lock_to(&self, anew: &Journal, timeout: Duration) -> Result<(), JournalError> {
        // That the server does not hear of it is no error: what counts is who has the lock next.
        let _ = unlock(self.file.file(), LockRange::WHOLE);
        lock_for(&anew.file, timeout)
    }

    /// The path at which it was opened.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Blocks of both areas: core's `VolumeConfig::journal_blocks`.
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// How the bytes reach the medium, and why not directly.
    pub fn access(&self) -> &Access {
        self.file.access()
    }

    /// The open file, for operations.
    pub(crate) fn file(&self) -> &Arc<DeviceFile> {
        &self.file
    }

    /// Byte of the file at which a run of blocks begins; it must lie within the areas.
    pub(crate) fn offset(&self, at: u32, blocks: u64) -> u64 {
        assert!(u64::from(at) + blocks <= u64::from(self.blocks), "blocks {at}+{blocks} lie within the journal");
        byte_of(at.into())
    }
}

/// The whole content of a new journal, durable but for its name.
fn write_new(file: &File, path: &Path, superblock: &JournalSuperblock) -> io::Result<()> {
    match reserve(file, superblock.file_bytes()) {
        Ok(()) => {}
        // File systems that cannot reserve (NFS before 4.2, for example) say by the zeros whether there is room.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::ENODEV)) => {}
        Err(error) => return Err(error),
    }
    // Written once, so that no later sync has to note which blocks are in use.
    write_zeros(file, path, superblock.file_bytes())?;
    DeviceFile::buffered(file.try_clone()?, path, "it is being made")?.write_now(0, &superblock.encode())?;
    file.sync_all()
}

fn write_zeros(file: &File, path: &Path, length: u64) -> io::Result<()> {
    let device = DeviceFile::buffered(file.try_clone()?, path, "it is being made")?;
    let mut zeros = AlignedBuffer::new(256 * TIER_BLOCK_BYTES);
    let mut done = 0;
    while done < length {
        let piece = (length - done).min(zeros.len() as u64) as usize;
        zeros.set_len(piece);
        device.write_now(done, &zeros)?;
        done += piece as u64;
    }
    Ok(())
}

/// The head's own word about its version, which is believed before anything else of it.
fn is_newer(head: &[u8]) -> bool {
    JournalBatch::head_blocks_hint(head).is_some() && u16::from_le_bytes([head[36], head[37]]) > JOURNAL_VERSION
}

#[cfg(test)]
mod tests;
