//! The slow store under a volume: a regular file on any file system, a block device, or an export of an NBD server,
//! perhaps behind wrappers.
//!
//! Invariants:
//! - One access mode for each opening: O_DIRECT where it works, otherwise the page cache with every write synced.
//! - Nothing is written before a lock is ours: of a single node the whole file's, of an owner in a cluster its term's.
//!   Block devices are claimed exclusively besides. An NBD export has no lock: there, its place is taken by the time
//!   after which late writes of a former process are not expected.
//! - An opening is of one term: who owns anew opens anew. So the end of a term's description says that nothing of that
//!   term is under way.
//! - An image of another format, a mounted device, a swap area or the file under a loop device is refused untouched.
//!
//! ```text
//! spec = { "slow:" parameters ":" | "faulty:" parameters ":" } ( path | NBD URI )     parameters = key=value,...
//! ```
//!
//! Wrappers act from left to right: an operation that a `faulty:` fails does not reach what stands to its right.

pub mod faulty;
pub mod foreign;
pub mod judged;
pub mod lock_look;
mod made;
pub mod nbd;
pub mod reopening;
pub mod slow;

use crate::clock::now as clock_now;
use crate::file::{Access, DeviceFile};
use crate::file_error::FileError;
use crate::folder::{FileKind, Folder, Held as HeldFile};
use crate::identity::sync_beside;
use crate::lock::scope::{LockScope, scope_of};
use crate::lock::{HolderDescription, LockAttempt, LockRange, holder_of, try_lock_range};
use crate::memory::AlignedBuffer;
use crate::stats::DeviceStats;
use faulty::{DeviceOperation, Fate, FaultPlan, FaultyParameters};
use forebay_core::types::{Duration, Instant, SECTOR_BYTES, Term, VOLUME_BYTES_MAX};
pub use made::MadeImage;
use made::create_sparse;
use nbd::NbdClient;
use nbd::uri::NbdUri;
use slow::{SlowModel, SlowParameters};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, io};

/// How a backing is to be opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackingOptions {
    /// Make a missing file, sparse and of this size.
    pub create: Option<u64>,
    /// Take an image of another format for a raw one.
    pub format_raw: bool,
    /// Bytes of the volume that it is opened for, where that is known: where O_DIRECT could not write the last of them, the
    /// page cache does.
    pub volume_bytes: Option<u64>,
}

/// What errors call it.
const WHAT: &str = "the backing";

/// Why a backing was not opened. Nothing was changed.
#[derive(Debug)]
pub enum OpenError {
    /// The spec cannot be read.
    BadSpec {
        /// The spec as the operator gave it.
        spec: String,
        /// What is wrong with it, for people.
        reason: String,
    },
    /// There is no such file.
    Missing {
        /// Where the file was looked for.
        path: PathBuf,
    },
    /// The file begins like an image of another format.
    ForeignFormat {
        /// The file that was refused.
        path: PathBuf,
        /// The format, as QEMU spells it.
        format: &'static str,
    },
    /// The device or file is used by something else on this host.
    InUse {
        /// The device or file that is in use.
        path: PathBuf,
        /// What uses it, in words that go on after `it is`.
        by: String,
    },
    /// Whoever judges places has refused this one.
    Refused {
        /// The spec as the operator gave it.
        spec: String,
        /// Why, and what to do.
        reason: String,
    },
    /// It cannot hold a volume, or a system call failed.
    File(FileError),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::BadSpec { spec, reason } => write!(f, "cannot read the backing `{spec}`: {reason}"),
            OpenError::Missing { path } => write!(
                f,
                "cannot open the backing {}: there is no such file; check the path, or let it be made by \
                 `--create --size SIZE`",
                path.display()
            ),
            OpenError::ForeignFormat { path, format } => write!(
                f,
                "refused to serve {} raw: it begins like a {format} image, whose metadata would be overwritten; export \
                 its content over NBD by `{}`, or make a raw copy by `qemu-img convert -O raw`, or, if these bytes \
                 really are the volume's own, say `--format raw`",
                path.display(),
                foreign::export_line(format, path)
            ),
            OpenError::InUse { path, by } => write!(
                f,
                "cannot use the backing {}: it is {by}; two writers would destroy each other's data, so end that use \
                 first",
                path.display()
            ),
            OpenError::Refused { spec, reason } => write!(f, "refused to open the backing {spec:?}: {reason}"),
            OpenError::File(error) => error.fmt(f),
        }
    }
}

// What a system call said is part of the text: given as a source as well, it would be printed twice.
impl std::error::Error for OpenError {}

/// A wrapper around the device.
#[derive(Clone, Debug)]
enum Layer {
    Slow(SlowModel),
    Faulty(FaultPlan),
}

/// Where a spec leads, behind its wrappers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A file or block device.
    Path(PathBuf),
    /// An export of an NBD server.
    Nbd(NbdUri),
}

impl Target {
    /// Whether both mean the same place, however it is to be used.
    pub fn same_place(&self, other: &Target) -> bool {
        match (self, other) {
            (Target::Path(one), Target::Path(other)) => one == other,
            (Target::Nbd(one), Target::Nbd(other)) => one.same_export(other),
            (Target::Path(_), Target::Nbd(_)) | (Target::Nbd(_), Target::Path(_)) => false,
        }
    }
}

/// A spec as read.
#[derive(Clone, Debug)]
pub struct BackingSpec {
    layers: Vec<Layer>,
    target: Target,
}

impl BackingSpec {
    /// Reads a spec; touches nothing.
    pub fn parse(spec: &str) -> Result<BackingSpec, OpenError> {
        let bad = |reason: String| OpenError::BadSpec { spec: spec.to_owned(), reason };
        let mut layers = Vec::new();
        let mut rest = spec;
        loop {
            let (name, after) = if let Some(after) = rest.strip_prefix("slow:") {
                ("slow", after)
            } else if let Some(after) = rest.strip_prefix("faulty:") {
                ("faulty", after)
            } else {
                break;
            };
            let Some((parameters, inner)) = after.split_once(':') else {
                return Err(bad(format!("after `{name}:` come its parameters, a colon, and what it wraps")));
            };
            layers.push(if name == "slow" {
                Layer::Slow(SlowModel::new(SlowParameters::parse(parameters).map_err(bad)?))
            } else {
                Layer::Faulty(FaultPlan::new(FaultyParameters::parse(parameters).map_err(bad)?))
            });
            rest = inner;
        }
        if rest.is_empty() {
            return Err(bad("the path is empty".into()));
        }
        if NbdUri::is_meant(rest) {
            return Ok(BackingSpec { layers, target: Target::Nbd(NbdUri::parse(rest).map_err(bad)?) });
        }
        if let Some((scheme, _)) = rest.split_once("://") {
            return Err(bad(format!(
                "backings are files, block devices and NBD exports (nbd://, nbd+unix://); `{scheme}://` is none (a file of \
                 such a name is written `./{rest}`)"
            )));
        }
        Ok(BackingSpec { layers, target: Target::Path(PathBuf::from(rest)) })
    }

    /// What is below its layers.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The wrappers before that, as they are written: `slow:` and `faulty:`.
    pub fn wrappers(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.layers.iter().map(|layer| match layer {
            Layer::Slow(_) => "slow:",
            Layer::Faulty(_) => "faulty:",
        })
    }

    /// The file or device; none for an NBD export.
    pub fn path(&self) -> Option<&Path> {
        match &self.target {
            Target::Path(path) => Some(path),
            Target::Nbd(_) => None,
        }
    }
}

/// Pairs of `key=value,...`.
fn pairs<'a>(of: &'a str, text: &'a str) -> Result<impl Iterator<Item = (&'a str, &'a str)>, String> {
    let all: Vec<_> = text.split(',').filter(|word| !word.is_empty()).map(|word| word.split_once('=')).collect();
    if all.iter().any(Option::is_none) {
        return Err(format!("{of} parameters are written key=value,key=value"));
    }
    Ok(all.into_iter().flatten())
}

fn number(key: &str, value: &str) -> Result<u64, String> {
    value.parse().map_err(|_| format!("`{key}={value}`: a whole number is needed"))
}

/// When an operation may be answered, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// Whether it is done, and how it is answered.
    pub fate: Fate,
    /// It is not answered before this time.
    pub due: Instant,
}

/// What carries the I/O.
#[derive(Debug)]
pub(crate) enum Device {
    File(Arc<DeviceFile>),
    Nbd {
        client: Box<NbdClient>,
        /// Late writes of a former process are waited for until then.
        quiet_until: Option<Instant>,
    },
}

/// Which locks are ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    Nothing,
    /// All bytes: a single node.
    Whole,
    /// The byte of a term: an owner in a cluster, or a candidate.
    Term {
        term: Term,
        strangers: Strangers,
    },
}

/// Whoever is no owner in the cluster: QEMU, a single node, an older version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Strangers {
    /// Locked out by us.
    Out,
    /// Locked out by a former owner.
    OutByFormer,
    /// One may be there, so nothing is written.
    MayBeThere,
}

/// The lock of a term, as others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TermLock {
    /// Nobody else has it. Of a former owner: nothing of it is under way, nor will be, as far as
    /// [`Backing::lock_reach`] says.
    Gone,
    /// Somebody else has it.
    HeldBy(HolderDescription),
    /// The backing has no locks.
    Unknown,
}

/// What an owner's attempt to lock everybody else out has brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnerLock {
    /// Everybody else is locked out.
    Alone,
    /// This former owner still has its own, and keeps strangers out.
    BesideFormer(Term),
    /// A stranger is there, so nothing may be written.
    HeldBy(HolderDescription),
}

/// An open backing, with the layers that its spec puts over the device.
#[derive(Debug)]
pub struct Backing {
    spec: String,
    device: Device,
    layers: Vec<Layer>,
    held: Held,
    /// It was made when it was opened.
    made: Option<MadeImage>,
    /// Counters; kept by [`crate::VolumeIo`].
    pub stats: DeviceStats,
}

impl Backing {
    /// Opens, and where allowed makes, what a spec names. Does not lock: see [`Backing::try_lock`]. An NBD server is
    /// connected to within a deadline of 5 s, and has answered a flush, within one of 60 s.
    pub fn open(spec: &str, options: BackingOptions) -> Result<Backing, OpenError> {
        let BackingSpec { layers, target } = BackingSpec::parse(spec)?;
        let (device, made) = match target {
            Target::Path(path) => {
                let (held, made) = hold_or_make(&path, options)?;
                let (file, made) = open_made(&held, made, options)?;
                (Device::File(file), made)
            }
            Target::Nbd(uri) => (Device::Nbd { client: Box::new(open_nbd(&uri, options)?), quiet_until: None }, None),
        };
        let (held, stats) = (Held::Nothing, DeviceStats::default());
        Ok(Backing { spec: spec.to_owned(), device, layers, held, made, stats })
    }

    /// The file, if it was made when this was opened: for whoever takes it away again where its volume does not come to be.
    pub fn take_made(&mut self) -> Option<MadeImage> {
        self.made.take()
    }

    /// Of a regular file that is open already, used through the page cache; nothing is opened by its name.
    pub fn of_file(file: std::fs::File, path: &Path) -> io::Result<Backing> {
        let device = Device::File(Arc::new(DeviceFile::buffered(file, path, "it is being made")?));
        let spec = path.display().to_string();
        let (held, stats) = (Held::Nothing, DeviceStats::default());
        Ok(Backing { spec, device, layers: Vec::new(), held, made: None, stats })
    }

    /// Tries to take the whole-file lock on the descriptor of the I/O. Once it is ours, no write of an earlier
    /// process can land any more, and QEMU refuses to open the file.
    ///
    /// An NBD export has no lock. It counts as locked unless late writes are waited for: see
    /// [`Backing::await_late_writes`].
    pub fn try_lock(&mut self) -> io::Result<LockAttempt> {
        match self.held {
            Held::Whole => return Ok(LockAttempt::Locked),
            Held::Term { term, .. } => panic!("locked for term {} already: a single node locks the whole file", term.0),
            Held::Nothing => {}
        }
        let attempt = self.attempt(LockRange::WHOLE)?;
        if attempt == LockAttempt::Locked {
            self.held = Held::Whole;
        }
        Ok(attempt)
    }

    /// Takes note that another thread has the lock of the whole file, by the description that this one shares with it
    /// ([`Backing::share`]): no system call is left to make, which on NFS would wait for the server. An export has no lock,
    /// and its time is looked at once more. False: it is not this one's.
    pub fn take_awaited_lock(&mut self) -> bool {
        match (&self.device, self.held) {
            (Device::File(_), Held::Nothing) => self.held = Held::Whole,
            (Device::File(_), Held::Whole | Held::Term { .. }) => {}
            // It looks at the clock, and makes no call either.
            (Device::Nbd { .. }, _) => drop(self.try_lock()),
        }
        self.locked()
    }

    /// Tries to take the byte of a term, before the transaction that may make this node its owner is sent. It allows no
    /// writing yet. Who is not made the owner drops this opening.
    pub fn lock_for_term(&mut self, term: Term) -> io::Result<LockAttempt> {
        match self.held {
            Held::Term { term: held, .. } => {
                assert_eq!(held, term, "an opening is of one term");
                return Ok(LockAttempt::Locked);
            }
            Held::Whole => {
                panic!("locked as a whole already: an owner in a cluster shares the file with its successor")
            }
            Held::Nothing => {}
        }
        let attempt = self.attempt(LockRange::of_term(term))?;
        if attempt == LockAttempt::Locked {
            self.held = Held::Term { term, strangers: Strangers::MayBeThere };
        }
        Ok(attempt)
    }

    /// An owner, whose term's byte is locked, tries to lock all before those bytes: then it may write. As long as a former
    /// owner that may still write has them, the byte alone allows writing. To be called again until it is
    /// [`OwnerLock::Alone`].
    pub fn lock_out_strangers(&mut self, unfenced: &[Term]) -> io::Result<OwnerLock> {
        let Held::Term { term, strangers } = self.held else {
            panic!("the term's byte is locked before the transaction that makes an owner");
        };
        if strangers == Strangers::Out {
            return Ok(OwnerLock::Alone);
        }
        let (strangers, lock) = match self.attempt(LockRange::STRANGERS)? {
            LockAttempt::Locked => (Strangers::Out, OwnerLock::Alone),
            LockAttempt::HeldBy(holder) => match self.first_held(unfenced)? {
                Some(former) => (Strangers::OutByFormer, OwnerLock::BesideFormer(former)),
                None => (Strangers::MayBeThere, OwnerLock::HeldBy(holder)),
            },
        };
        self.held = Held::Term { term, strangers };
        Ok(lock)
    }

    fn first_held(&self, terms: &[Term]) -> io::Result<Option<Term>> {
        for &term in terms {
            if let TermLock::HeldBy(_) = self.lock_of_term(term)? {
                return Ok(Some(term));
            }
        }
        Ok(None)
    }

    /// Looks who else has the lock of a term, which ends with the last write of its owner.
    pub fn lock_of_term(&self, term: Term) -> io::Result<TermLock> {
        let Some(file) = self.file() else { return Ok(TermLock::Unknown) };
        let holder = holder_of(file.file(), LockRange::of_term(term))?;
        Ok(holder.map_or(TermLock::Gone, TermLock::HeldBy))
    }

    /// Takes the byte of somebody else's term, so that nobody gets it as long as this opening lives: then its owner is gone, or
    /// will read that it is none before it has the byte (`docs/protocol.md`, Locks). It allows no writing.
    pub fn keep_out(&self, term: Term) -> io::Result<LockAttempt> {
        assert_eq!(self.held, Held::Nothing, "an opening of its own keeps others out");
        match &self.device {
            Device::File(file) => try_lock_range(file.file(), LockRange::alone(term)),
            Device::Nbd { .. } => Ok(LockAttempt::HeldBy(HolderDescription::Unseen)),
        }
    }

    /// Who holds the lock of any term before this one, as far as this host sees.
    pub fn holder_before(&self, term: Term) -> io::Result<Option<HolderDescription>> {
        match (self.file(), LockRange::before_term(term)) {
            (Some(file), Some(range)) => holder_of(file.file(), range),
            (None, _) | (_, None) => Ok(None),
        }
    }

    /// About whom a lock of this backing proves anything, and why.
    pub fn lock_reach(&self) -> io::Result<LockScope> {
        match &self.device {
            Device::File(file) => scope_of(file),
            Device::Nbd { .. } => Ok(LockScope::of_nbd()),
        }
    }

    fn attempt(&self, range: LockRange) -> io::Result<LockAttempt> {
        match &self.device {
            Device::File(file) => try_lock_range(file.file(), range),
            Device::Nbd { quiet_until: Some(until), .. } if clock_now() < *until => {
                Ok(LockAttempt::HeldBy(HolderDescription::Unseen))
            }
            Device::Nbd { .. } => Ok(LockAttempt::Locked),
        }
    }

    /// The former process is gone and may have left writes in its connection to an NBD server: nothing is written for
    /// the time that the URI says, counted from now. How long, if it has to be waited at all. Files have their lock.
    pub fn await_late_writes(&mut self) -> Option<Duration> {
        match &mut self.device {
            Device::File(_) => None,
            Device::Nbd { client, .. } if client.uri().quiet == Duration(0) => None,
            Device::Nbd { client, quiet_until } => {
                let quiet = client.uri().quiet;
                *quiet_until = Some(clock_now() + quiet);
                client.expect_late_changes();
                self.held = Held::Nothing;
                Some(quiet)
            }
        }
    }

    /// The same open file, with the same lock, for a thread that does one thing to the image by itself: its wrappers
    /// begin anew. None for an NBD export, whose one connection cannot be shared.
    pub fn share(&self) -> Option<Backing> {
        let file = self.file()?.clone();
        let layers = BackingSpec::parse(&self.spec).ok()?.layers;
        let (spec, stats) = (self.spec.clone(), DeviceStats::default());
        Some(Backing { spec, device: Device::File(file), layers, held: self.held, made: None, stats })
    }

    /// Whether writing is allowed: the lock of a single node or of an owner is ours, or (NBD) nothing has to be waited for.
    pub fn locked(&self) -> bool {
        match self.held {
            Held::Whole | Held::Term { strangers: Strangers::Out | Strangers::OutByFormer, .. } => true,
            Held::Nothing | Held::Term { strangers: Strangers::MayBeThere, .. } => false,
        }
    }

    /// The spec as it was given to `open`.
    pub fn spec(&self) -> &str {
        &self.spec
    }

    /// The path or URI, for people.
    pub fn name(&self) -> String {
        match &self.device {
            Device::File(file) => file.path().display().to_string(),
            Device::Nbd { client, .. } => client.uri().to_string(),
        }
    }

    /// Where it lies; none for an NBD export.
    pub fn path(&self) -> Option<&Path> {
        self.file().map(|file| file.path())
    }

    /// A write that has ended has left this host's memory: it was no write to its page cache.
    pub fn is_past_cache(&self) -> bool {
        self.file().is_none_or(|file| matches!(file.access(), Access::Direct { .. }))
    }

    /// How the bytes reach it, for people.
    pub fn access(&self) -> String {
        match &self.device {
            Device::File(file) => match file.access() {
                Access::Direct { align } => format!("O_DIRECT in units of {align} bytes"),
                Access::Buffered { reason } => {
                    format!("buffered, each write synced, because O_DIRECT does not work: {reason}")
                }
            },
            Device::Nbd { client, .. } => {
                let nbd::handshake::Export { flush, zero, align, request_bytes_max, .. } = client.export();
                format!(
                    "NBD in units of {align} bytes, at most {request_bytes_max} a request{}{}",
                    if *zero { "" } else { ", zeros written as data" },
                    if *flush { "" } else { ", WITHOUT FLUSH: nothing is known to be durable" },
                )
            }
        }
    }

    /// Writes and zeros must be multiples of this.
    pub fn align(&self) -> u32 {
        match &self.device {
            Device::File(file) => file.align(),
            Device::Nbd { client, .. } => client.export().align,
        }
    }

    /// The open file or device, for operations; none for an NBD export.
    pub fn file(&self) -> Option<&Arc<DeviceFile>> {
        match &self.device {
            Device::File(file) => Some(file),
            Device::Nbd { .. } => None,
        }
    }

    /// What carries the I/O.
    pub(crate) fn device_mut(&mut self) -> &mut Device {
        &mut self.device
    }

    /// The client of an NBD export.
    pub fn nbd(&self) -> Option<&NbdClient> {
        match &self.device {
            Device::File(_) => None,
            Device::Nbd { client, .. } => Some(client),
        }
    }

    /// The client of an NBD export.
    pub(crate) fn nbd_mut(&mut self) -> Option<&mut NbdClient> {
        match &mut self.device {
            Device::File(_) => None,
            Device::Nbd { client, .. } => Some(client),
        }
    }

    /// Bytes that a volume can use: the size, rounded down to the alignment.
    pub fn size(&self) -> io::Result<u64> {
        let size = match &self.device {
            Device::File(file) => file.size()?,
            Device::Nbd { client, .. } => client.export().size,
        };
        Ok(size - size % u64::from(self.align()))
    }

    /// Makes a file at least so large; a device or export must be so large already. Blocks for the time of the system
    /// call.
    pub fn grow(&self, size: u64) -> io::Result<()> {
        if size > VOLUME_BYTES_MAX || !size.is_multiple_of(u64::from(self.align())) {
            let reason = format!("a size is a multiple of {} bytes and at most 64 TiB; {size} is not", self.align());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        let too_small = |has: u64, what: &str| {
            let reason = format!("{what} {} has {has} bytes; enlarge it to {size} first", self.name());
            Err(io::Error::new(io::ErrorKind::InvalidInput, reason))
        };
        let file = match &self.device {
            Device::File(file) => file,
            Device::Nbd { client, .. } if size <= client.export().size => return Ok(()),
            Device::Nbd { client, .. } => {
                let what =
                    "a larger export is seen when its server is connected to anew, so restart it then: the export";
                return too_small(client.export().size, what);
            }
        };
        let has = file.size()?;
        if size <= has {
            return Ok(());
        }
        match file.kind() {
            FileKind::Regular => {
                file.file().set_len(size)?;
                // Not by the description of the I/O, from which it could hide an error.
                sync_beside(file.file())
            }
            FileKind::Block => too_small(has, "the device"),
        }
    }

    /// Whether so many bytes have room in it, without a call that may block: a regular file was grown before ([`Backing::grow`]), by
    /// another opening as well; a device or export has what it has.
    pub fn require_room(&self, size: u64) -> io::Result<()> {
        match &self.device {
            Device::File(file) if file.kind() == FileKind::Regular => Ok(()),
            Device::File(_) | Device::Nbd { .. } => self.grow(size),
        }
    }

    /// Leads an operation through the wrappers: what happens to it, and when it may be answered.
    pub fn admit(&mut self, now: Instant, operation: DeviceOperation) -> Admission {
        let mut due = Instant(0);
        for layer in &mut self.layers {
            match layer {
                Layer::Slow(model) => {
                    due = due.max(match operation {
                        DeviceOperation::Read { bytes } | DeviceOperation::Write { bytes } => {
                            model.operation(now, bytes)
                        }
                        DeviceOperation::Zero { .. } => model.operation(now, 0),
                        DeviceOperation::Sync => model.sync(now),
                    });
                }
                Layer::Faulty(plan) => match plan.fate(operation) {
                    Fate::Honest => {}
                    // What is done but told too soon is told at once, whatever it costs the models behind.
                    fate => return Admission { fate, due },
                },
            }
        }
        Admission { fate: Fate::Honest, due }
    }
}

/// What a path leads to; where nothing is there and it may be made, it is made.
fn hold_or_make(path: &Path, options: BackingOptions) -> Result<(HeldFile, Option<MadeImage>), OpenError> {
    let failed = |attempted, error: io::Error| OpenError::File(FileError::failed(WHAT, path, attempted, error));
    if let Some(held) = HeldFile::found(path).map_err(|error| failed("look at", error))? {
        return Ok((held, None));
    }
    let Some(size) = options.create else { return Err(OpenError::Missing { path: path.to_owned() }) };
    let (folder, name) = Folder::of(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            let reason = "its folder is not there; make that first, or check the path";
            OpenError::File(FileError::unusable(WHAT, path, reason))
        }
        _ => failed("look at the folder of", error),
    })?;
    let made = create_sparse(&folder, &name, path, size)?;
    match folder.hold(&name, path) {
        Ok(held) => Ok((held, Some(made))),
        Err(error) => made.take_back_after(failed("look at", error)),
    }
}

/// Opens what is held; where it was made for this and cannot be opened it goes again.
fn open_made(
    held: &HeldFile,
    made: Option<MadeImage>,
    options: BackingOptions,
) -> Result<(Arc<DeviceFile>, Option<MadeImage>), OpenError> {
    match (open_file(held, options), made) {
        (Ok(file), made) => Ok((Arc::new(file), made)),
        (Err(error), Some(made)) => made.take_back_after(error),
        (Err(error), None) => Err(error),
    }
}

/// Opens what is held, whatever its path leads to by now.
fn open_file(held: &HeldFile, options: BackingOptions) -> Result<DeviceFile, OpenError> {
    let path = held.path().to_owned();
    let failed = |attempted| {
        let path = path.clone();
        move |error| OpenError::File(FileError::failed(WHAT, &path, attempted, error))
    };
    held.kind().map_err(failed("look at"))?;
    if let Some(by) = user_of(held) {
        return Err(OpenError::InUse { path, by });
    }
    let opened = DeviceFile::open_held(held, true, options.volume_bytes);
    let file = match opened {
        Ok(file) => file.with_stable_writes(),
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
            let by = "claimed by a mount, a device mapper or RAID device, or another process that opened it \
                      exclusively (perhaps one that was killed and whose last requests are still under way)";
            return Err(OpenError::InUse { path, by: by.into() });
        }
        Err(error) => return Err(failed("open")(error)),
    };
    let size = file.size().map_err(failed("read the size of"))?;
    if size < SECTOR_BYTES {
        let reason = format!("it has {size} bytes, and a volume has at least 512; make it larger by `truncate -s`");
        return Err(OpenError::File(FileError::unusable(WHAT, &path, reason)));
    }
    if !options.format_raw {
        let mut head = AlignedBuffer::new(foreign::HEAD_BYTES);
        file.read_now(0, &mut head).map_err(failed("read"))?;
        if let Some(format) = foreign::format_of(&head) {
            return Err(OpenError::ForeignFormat { path, format });
        }
    }
    Ok(file)
}

fn open_nbd(uri: &NbdUri, options: BackingOptions) -> Result<NbdClient, OpenError> {
    let path = PathBuf::from(uri.to_string());
    let failed = |attempted| {
        let path = path.clone();
        move |error| OpenError::File(FileError::failed(WHAT, &path, attempted, error))
    };
    let connected = nbd::handshake::connect(uri).map_err(failed("connect to"))?;
    let size = connected.export.size;
    if size < u64::from(connected.export.align) {
        let reason = format!("the export has {size} bytes, and a volume has at least 512; export something larger");
        return Err(OpenError::File(FileError::unusable(WHAT, &path, reason)));
    }
    if !options.format_raw {
        let mut head = vec![0; foreign::HEAD_BYTES];
        nbd::handshake::read_head(&connected, &mut head).map_err(failed("read the beginning of"))?;
        if let Some(format) = foreign::format_of(&head) {
            return Err(OpenError::ForeignFormat { path, format });
        }
    }
    // Whoever opens it may have no log of what the one before has written, and so nothing to sync before it promises that a flush
    // covers it.
    nbd::handshake::flush(&connected).map_err(failed("flush"))?;
    Ok(NbdClient::new(uri.clone(), connected))
}

/// A use by this host's kernel that would write behind our back; none where /proc and /sys show nothing.
pub fn user_of(held: &HeldFile) -> Option<String> {
    let kind = held.kind().ok()?;
    let metadata = held.place().and_then(|place| place.metadata()).ok()?;
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    for line in read("/proc/swaps").lines().skip(1) {
        let area = line.split_whitespace().next().unwrap_or_default().replace("\\040", " ");
        if let Ok(area) = std::fs::metadata(area) {
            let same = match kind {
                FileKind::Block => area.rdev() == metadata.rdev(),
                FileKind::Regular => (area.dev(), area.ino()) == (metadata.dev(), metadata.ino()),
            };
            if same {
                return Some("in use as swap".into());
            }
        }
    }
    match kind {
        FileKind::Block => {
            let device = metadata.rdev();
            let number = format!("{}:{}", libc::major(device), libc::minor(device));
            for line in read("/proc/self/mountinfo").lines() {
                let mut words = line.split(' ');
                if words.nth(2) == Some(&number) {
                    return Some(format!("mounted at {}", words.nth(1).unwrap_or("?")));
                }
            }
            let holders = std::fs::read_dir(format!("/sys/dev/block/{number}/holders")).ok()?;
            let names: Vec<_> =
                holders.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
            (!names.is_empty()).then(|| format!("part of {}", names.join(", ")))
        }
        FileKind::Regular => {
            let path = held.by_descriptor().canonicalize().ok()?;
            std::fs::read_dir("/sys/block").ok()?.flatten().find_map(|entry| {
                let name = entry.file_name();
                let under = read(&format!("/sys/block/{}/loop/backing_file", name.to_string_lossy()));
                (!under.is_empty() && Path::new(under.trim_end_matches('\n')) == path)
                    .then(|| format!("under the loop device /dev/{}", name.to_string_lossy()))
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_error::FileProblem;

    fn image(folder: &tempfile::TempDir, bytes: usize) -> String {
        let path = folder.path().join("disk.img");
        std::fs::write(&path, vec![0u8; bytes]).unwrap();
        path.to_str().unwrap().to_owned()
    }

    #[test]
    fn wrappers_nest_and_the_path_may_contain_colons() {
        let spec = BackingSpec::parse("slow:iops=700,latency=8ms:faulty:drop_sync=1:slow:rate=1M:/a:b/c").unwrap();
        assert_eq!(spec.path(), Some(Path::new("/a:b/c")));
        assert!(matches!(spec.layers[..], [Layer::Slow(_), Layer::Faulty(_), Layer::Slow(_)]));
        assert_eq!(BackingSpec::parse("./slow:x").unwrap().path(), Some(Path::new("./slow:x")));
        let nbd = BackingSpec::parse("slow:iops=700,latency=8ms:nbd://[::1]:10810/vm1").unwrap();
        assert_eq!((nbd.path(), nbd.layers.len()), (None, 1));
        assert!(nbd.target().same_place(BackingSpec::parse("nbd://[::1]:10810/vm1?nbd_quiet=0s").unwrap().target()));
        for wrong in ["", "slow:", "slow:iops=1", "slow:iops=1:", "faulty:what=1:/x", "nbd:///x", "http://host/x"] {
            assert!(matches!(BackingSpec::parse(wrong), Err(OpenError::BadSpec { .. })), "{wrong}");
        }
    }

    #[test]
    fn a_missing_file_is_made_only_on_request() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new.img");
        let spec = path.to_str().unwrap();
        let error = Backing::open(spec, BackingOptions::default()).unwrap_err();
        assert!(error.to_string().contains("--create"), "{error}");
        assert!(!path.exists());
        assert!(Backing::open(spec, BackingOptions { create: Some(1000), ..Default::default() }).is_err());
        assert!(!path.exists());
        let made = Backing::open(spec, BackingOptions { create: Some(1 << 20), ..Default::default() }).unwrap();
        assert_eq!(made.size().unwrap(), 1 << 20);
        made.grow(2 << 20).unwrap();
        made.grow(1 << 20).unwrap();
        assert_eq!(made.size().unwrap(), 2 << 20);
        assert!(made.grow(1000).is_err());
    }

    #[test]
    fn images_of_other_formats_are_refused_untouched_unless_called_raw() {
        let folder = tempfile::tempdir().unwrap();
        let spec = image(&folder, 8192);
        std::fs::write(&spec, [b"QFI\xfb".as_slice(), &[1; 8188]].concat()).unwrap();
        let before = std::fs::read(&spec).unwrap();
        let error = Backing::open(&spec, BackingOptions::default()).unwrap_err();
        assert!(matches!(error, OpenError::ForeignFormat { format: "qcow2", .. }));
        assert!(error.to_string().contains("qemu-nbd --persistent"), "{error}");
        assert!(error.to_string().contains(&format!("--format=qcow2 {spec}")), "{error}");
        Backing::open(&spec, BackingOptions { format_raw: true, ..Default::default() }).unwrap();
        assert_eq!(std::fs::read(&spec).unwrap(), before);
    }

    #[test]
    fn a_second_opener_is_refused_and_told_who_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let spec = image(&folder, 8192);
        let mut first = Backing::open(&spec, BackingOptions::default()).unwrap();
        let mut second = Backing::open(&spec, BackingOptions::default()).unwrap();
        assert_eq!(first.try_lock().unwrap(), LockAttempt::Locked);
        assert_eq!(first.try_lock().unwrap(), LockAttempt::Locked);
        match second.try_lock().unwrap() {
            LockAttempt::HeldBy(holder) => {
                assert!(holder.to_string().starts_with(&format!("process {} ", std::process::id())), "{holder}");
            }
            LockAttempt::Locked => panic!("two owners"),
        }
        drop(first);
        assert_eq!(second.try_lock().unwrap(), LockAttempt::Locked);
    }

    #[test]
    fn a_fault_to_the_left_spares_the_model_to_the_right() {
        let folder = tempfile::tempdir().unwrap();
        let path = image(&folder, 8192);
        let open = |spec: String| Backing::open(&spec, BackingOptions::default()).unwrap();
        let write = DeviceOperation::Write { bytes: 4096 };
        let now = Instant(1_000_000_000);
        let mut outer = open(format!("faulty:write_error=1:slow:latency=8ms:{path}"));
        assert_eq!(outer.admit(now, write), Admission { fate: Fate::Fails(libc::EIO), due: Instant(0) });
        let mut inner = open(format!("slow:latency=8ms:faulty:write_error=1:{path}"));
        let expected = Admission { fate: Fate::Fails(libc::EIO), due: Instant(1_008_000_000) };
        assert_eq!(inner.admit(now, write), expected);
    }

    #[test]
    fn an_empty_file_and_a_folder_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let spec = image(&folder, 0);
        assert!(matches!(
            Backing::open(&spec, BackingOptions::default()),
            Err(OpenError::File(FileError { problem: FileProblem::Unusable(_), .. }))
        ));
        let folder = folder.path().to_str().unwrap();
        assert!(matches!(
            Backing::open(folder, BackingOptions::default()),
            Err(OpenError::File(FileError { problem: FileProblem::Failed { .. }, .. }))
        ));
    }
}
