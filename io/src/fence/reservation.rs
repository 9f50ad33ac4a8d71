//! Persistent reservations of a block device (SCSI-3, NVMe) through the kernel's `pr_ops`: who is not registered cannot
//! write, and who is expelled is registered no more.
//!
//! Invariants:
//! - A key stands for a *node*. A registration belongs to a host's path to the device, so it lets all writes of that
//!   host pass, of whatever term: a key with a term in it would seem gone when the host has registered under a newer
//!   one. So it proves nothing about a former owner on the same host.
//! - The type is "write exclusive, registrants only": the host may reach the device by several paths, each registered.
//!   Anybody may register, so a node does it as it takes its lock: *before* the transaction that makes it the owner
//!   (`docs/protocol.md`, Reservations), and not while writes of a former term of its own are under way.
//! - *Expelled* is what the device says when it is asked again: that we hold the reservation, and that nobody has the
//!   other's key.
//!
//! The device aborts what the expelled host had sent (preempt *and abort*), so nothing of it lands afterwards.
//! NVMe: the kernel's own target (nvmet) has reservations from Linux 6.13 on; tested is SCSI.

use crate::file::DeviceFile;
use crate::folder::{FileKind, Held};
use forebay_core::cluster::NodeId;
use std::fs::File;
use std::num::NonZeroU64;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::{fmt, io};

/// Most times that a device is asked again because it had news of its own to tell first (a unit attention), or
/// because the expelled registers anew.
const ATTEMPTS_MAX: u32 = 4;

/// By what a node is known to a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReservationKey(NonZeroU64);

impl ReservationKey {
    /// That of a node. Zero means "none" to a device, hence the bit.
    pub fn of_node(node: NodeId) -> ReservationKey {
        ReservationKey(NonZeroU64::new(node.0 | 1 << 63).expect("a bit is set"))
    }

    /// Reads a key as [`fmt::Display`] writes it; none: it is no key.
    pub fn parse(text: &str) -> Option<ReservationKey> {
        let digits = text.strip_prefix("0x")?;
        NonZeroU64::new(u64::from_str_radix(digits, 16).ok()?).map(ReservationKey)
    }
}

impl fmt::Display for ReservationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#018x}", self.0)
    }
}

/// How somebody came to be registered no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expelled {
    /// This call has removed the registration.
    Now,
    /// There was no such registration.
    WasNotRegistered,
}

/// Why a device is not reserved, or somebody is not expelled.
#[derive(Debug)]
pub enum ReservationError {
    /// Nothing that can be reserved.
    Unusable {
        /// What was to be reserved.
        path: PathBuf,
        /// Why, and what to do.
        reason: String,
    },
    /// A system call failed.
    Failed {
        /// What was attempted, in words that stand before the path.
        attempted: &'static str,
        /// The device that it was attempted on.
        path: PathBuf,
        /// What the system call said.
        error: io::Error,
    },
    /// The device has refused a command for another reason than a reservation.
    Refused {
        /// What was attempted, in words that stand before the path.
        attempted: &'static str,
        /// The device that refused.
        path: PathBuf,
        /// The kernel's `enum pr_status`, a SCSI result or an NVMe status.
        status: i32,
    },
    /// Somebody else has it reserved.
    HeldByAnother {
        /// The device that is reserved.
        path: PathBuf,
    },
    /// The other registers anew as often as it is expelled.
    NotExpelled {
        /// The device that it registers at.
        path: PathBuf,
        /// Key of the other.
        key: ReservationKey,
    },
}

impl fmt::Display for ReservationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReservationError::Unusable { path, reason } => write!(f, "cannot reserve {}: {reason}", path.display()),
            ReservationError::Failed { attempted, path, error } => {
                write!(f, "cannot {attempted} {}: {error}", path.display())
            }
            ReservationError::Refused { attempted, path, status } => write!(
                f,
                "cannot {attempted} {}: the device refuses the command (status {status:#x}); it has no persistent \
                 reservations that outlive its loss of power, or they are switched off in it",
                path.display()
            ),
            ReservationError::HeldByAnother { path } => write!(
                f,
                "cannot reserve {}: somebody else has it reserved; `sg_persist --in --read-full-status` shows who (SCSI), \
                 `nvme resv-report` for NVMe. End that use first",
                path.display()
            ),
            ReservationError::NotExpelled { path, key } => write!(
                f,
                "cannot expel {key} from {}: it registers anew each time; stop what does so on that host",
                path.display()
            ),
        }
    }
}

// What a system call said is part of the text: given as a source as well, it would be printed twice.
impl std::error::Error for ReservationError {}

/// What a device answers to a command about reservations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Done,
    /// It conflicts with the reservation, or who asks is not registered.
    Conflict,
    Other(i32),
}

impl Answer {
    /// `enum pr_status` since Linux 6.4. Before, what the transport has: SCSI's status byte 0x18, to which the kernel adds a
    /// mark of its own (until 6.0 the host byte 0x11, then 1 above the status); NVMe's, with and without "do not retry".
    fn of(status: i32) -> Answer {
        match status {
            0 => Answer::Done,
            0x18 | 0x118 | 0x11_0018 | 0x83 | 0x4083 => Answer::Conflict,
            other => Answer::Other(other),
        }
    }
}

/// `struct pr_registration` of linux/pr.h.
#[repr(C)]
struct Registration {
    old_key: u64,
    new_key: u64,
    flags: u32,
    padding: u32,
}

/// The kernel's `struct pr_reservation`.
#[repr(C)]
struct Reservation {
    key: u64,
    kind: u32,
    flags: u32,
}

/// `struct pr_preempt`. The drivers of SCSI and NVMe take `old_key` for the caller's own and `new_key` for the one that
/// is to go, the other way round than Documentation/block/pr.rst says.
#[repr(C)]
struct Preemption {
    old_key: u64,
    new_key: u64,
    kind: u32,
    flags: u32,
}

/// The kernel's PR_WRITE_EXCLUSIVE_REG_ONLY: whoever is registered may write.
const REGISTRANTS_ONLY: u32 = 3;
/// PR_FL_IGNORE_KEY: whatever key this path is registered under.
const IGNORE_KEY: u32 = 1;

/// A command, with its argument as the kernel takes it.
enum Order {
    Register(Registration),
    Reserve(Reservation),
    Release(Reservation),
    PreemptAndAbort(Preemption),
}

impl Order {
    fn attempted(&self) -> &'static str {
        match self {
            Order::Register(Registration { new_key: 0, .. }) => "unregister from",
            Order::Register(_) => "register with",
            Order::Reserve(_) => "reserve",
            Order::Release(_) => "release",
            Order::PreemptAndAbort(_) => "expel somebody from",
        }
    }

    /// `_IOW('p', number, argument)`, and where the argument lies.
    fn request(&self) -> (libc::c_ulong, *const libc::c_void) {
        let write =
            |number: usize, size: usize| (1 << 30 | size << 16 | (b'p' as usize) << 8 | number) as libc::c_ulong;
        match self {
            Order::Register(argument) => (write(200, size_of::<Registration>()), (&raw const *argument).cast()),
            Order::Reserve(argument) => (write(201, size_of::<Reservation>()), (&raw const *argument).cast()),
            Order::Release(argument) => (write(202, size_of::<Reservation>()), (&raw const *argument).cast()),
            Order::PreemptAndAbort(argument) => (write(204, size_of::<Preemption>()), (&raw const *argument).cast()),
        }
    }
}

/// An open block device that can be reserved, perhaps.
#[derive(Debug)]
pub struct ReservableDevice {
    file: File,
    path: PathBuf,
}

impl ReservableDevice {
    /// Opens a whole block device, and changes nothing. Needs CAP_SYS_ADMIN for what follows.
    pub fn open(path: &Path) -> Result<ReservableDevice, ReservationError> {
        ReservableDevice::open_by(path, || {
            let held = Held::of(path)?;
            Ok((held.kind()?, held.open(true, libc::O_NONBLOCK)?))
        })
    }

    /// The same of a backing that is open: its own device, whatever its path leads to by now.
    pub fn of(backing: &DeviceFile) -> Result<ReservableDevice, ReservationError> {
        ReservableDevice::open_by(backing.path(), || {
            let way = format!("/proc/self/fd/{}", backing.raw());
            let options = File::options().read(true).write(true).custom_flags(libc::O_NONBLOCK).clone();
            Ok((backing.kind(), options.open(way)?))
        })
    }

    fn open_by(
        path: &Path,
        open: impl FnOnce() -> io::Result<(FileKind, File)>,
    ) -> Result<ReservableDevice, ReservationError> {
        let path = path.to_owned();
        let failed = |error| ReservationError::Failed { attempted: "open", path: path.clone(), error };
        let unusable = |reason: &str| ReservationError::Unusable { path: path.clone(), reason: reason.into() };
        let (kind, file) = open().map_err(failed)?;
        if kind != FileKind::Block {
            return Err(unusable("a reservation is of a block device, and it is a file"));
        }
        let device = file.metadata().map_err(failed)?.rdev();
        let number = format!("/sys/dev/block/{}:{}/partition", libc::major(device), libc::minor(device));
        if Path::new(&number).exists() {
            return Err(unusable("a reservation is of a whole device, and it is a partition; name the device"));
        }
        Ok(ReservableDevice { file, path })
    }

    /// One that is open and registered already, by the same description: to open and close a device again and again is told to everybody
    /// who watches it.
    pub fn of_open(device: &DeviceFile) -> io::Result<ReservableDevice> {
        Ok(ReservableDevice { file: device.file().try_clone()?, path: device.path().to_owned() })
    }

    /// The path at which the device was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its number: of the device that is open, whatever its path leads to by now.
    pub fn number(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.rdev())
    }

    /// Registers this host's path under a key, whatever key it was registered under before.
    pub fn register(&self, key: ReservationKey) -> Result<(), ReservationError> {
        self.must(Order::Register(Registration { old_key: 0, new_key: key.0.get(), flags: IGNORE_KEY, padding: 0 }))
    }

    /// Registers this host's path under a key, unless it is registered: another use of the device is left alone.
    pub fn register_anew(&self, key: ReservationKey) -> Result<(), ReservationError> {
        let order = Order::Register(Registration { old_key: 0, new_key: key.0.get(), flags: 0, padding: 0 });
        match self.ask(&order)? {
            Answer::Done => Ok(()),
            Answer::Conflict => {
                let reason = "this host is registered with it already, under another key: end that use first";
                Err(ReservationError::Unusable { path: self.path.clone(), reason: reason.into() })
            }
            Answer::Other(status) => Err(self.refused(&order, status)),
        }
    }

    /// Reserves the device for those that are registered. Done again by who has it reserved, it changes nothing.
    pub fn reserve(&self, own: ReservationKey) -> Result<(), ReservationError> {
        self.must(Order::Reserve(Reservation { key: own.0.get(), kind: REGISTRANTS_ONLY, flags: 0 }))
    }

    /// As a member of a cluster: reserves the device, unless somebody has it reserved. Whoever has keeps out who is not
    /// registered just as well, and no node of a cluster gives its reservation up.
    pub fn reserve_beside(&self, own: ReservationKey) -> Result<(), ReservationError> {
        match self.reserve(own) {
            // Who is not registered hears the same answer.
            Err(ReservationError::HeldByAnother { .. }) => self.must_be_registered(own),
            reserved => reserved,
        }
    }

    fn must_be_registered(&self, own: ReservationKey) -> Result<(), ReservationError> {
        if self.is_registered(own)? {
            return Ok(());
        }
        let reason = "this host is registered with it no more: another node has expelled it";
        Err(ReservationError::Unusable { path: self.path.clone(), reason: reason.into() })
    }

    /// Whether this host's path is registered under this key still. It changes nothing: the key gives way to itself, and where it is
    /// not registered the device refuses that.
    pub fn is_registered(&self, own: ReservationKey) -> Result<bool, ReservationError> {
        let key = own.0.get();
        let order = Order::Register(Registration { old_key: key, new_key: key, flags: 0, padding: 0 });
        match self.ask(&order)? {
            Answer::Done => Ok(true),
            Answer::Conflict => Ok(false),
            Answer::Other(status) => Err(self.refused(&order, status)),
        }
    }

    /// Gives reservation and registration up.
    pub fn leave(&self, own: ReservationKey) -> Result<(), ReservationError> {
        self.must(Order::Release(Reservation { key: own.0.get(), kind: REGISTRANTS_ONLY, flags: 0 }))?;
        self.must(Order::Register(Registration { old_key: own.0.get(), new_key: 0, flags: 0, padding: 0 }))
    }

    /// Expels another node, ends what it had sent to the device, and takes the reservation. Returns when the device has
    /// said, asked again, that the reservation is ours and that nobody has the other's key.
    pub fn expel(&self, own: ReservationKey, other: ReservationKey) -> Result<Expelled, ReservationError> {
        self.expel_under(own, other, ReservableDevice::reserve)
    }

    /// The same as a member of a cluster, of which any may have the reservation: it returns when the device has one, and
    /// nobody has the other's key.
    pub fn expel_beside(&self, own: ReservationKey, other: ReservationKey) -> Result<Expelled, ReservationError> {
        self.expel_under(own, other, ReservableDevice::reserve_beside)
    }

    fn expel_under(
        &self,
        own: ReservationKey,
        other: ReservationKey,
        reserve: fn(&ReservableDevice, ReservationKey) -> Result<(), ReservationError>,
    ) -> Result<Expelled, ReservationError> {
        assert_ne!(own, other, "nobody expels itself");
        let mut outcome = Expelled::WasNotRegistered;
        for _ in 0..ATTEMPTS_MAX {
            let argument =
                Preemption { old_key: own.0.get(), new_key: other.0.get(), kind: REGISTRANTS_ONLY, flags: 0 };
            let order = Order::PreemptAndAbort(argument);
            match self.ask(&order)? {
                Answer::Done => outcome = Expelled::Now,
                // Nobody has that key, or we are not registered ourselves: only who is can reserve.
                Answer::Conflict => {
                    reserve(self, own)?;
                    // A look after the reservation is ours: what was expelled before it is no word about now.
                    match self.ask(&order)? {
                        Answer::Conflict => {
                            reserve(self, own)?;
                            return Ok(outcome);
                        }
                        Answer::Done => outcome = Expelled::Now,
                        Answer::Other(status) => return Err(self.refused(&order, status)),
                    }
                }
                Answer::Other(status) => return Err(self.refused(&order, status)),
            }
        }
        Err(ReservationError::NotExpelled { path: self.path.clone(), key: other })
    }

    fn refused(&self, order: &Order, status: i32) -> ReservationError {
        ReservationError::Refused { attempted: order.attempted(), path: self.path.clone(), status }
    }

    fn must(&self, order: Order) -> Result<(), ReservationError> {
        match self.ask(&order)? {
            Answer::Done => Ok(()),
            Answer::Conflict => Err(ReservationError::HeldByAnother { path: self.path.clone() }),
            Answer::Other(status) => Err(self.refused(&order, status)),
        }
    }

    /// Asks until the device answers the question: the first command after a change that another host has made may be
    /// answered by that news alone (SCSI: CHECK CONDITION with a unit attention).
    fn ask(&self, order: &Order) -> Result<Answer, ReservationError> {
        const CHECK_CONDITION: i32 = 2;
        let (number, argument) = order.request();
        let mut answer = Answer::Done;
        for _ in 0..ATTEMPTS_MAX {
            // SAFETY: the number says the size of the argument, which the kernel only reads and which outlives the call.
            let status = unsafe { libc::ioctl(self.file.as_raw_fd(), number, argument) };
            if status < 0 {
                return Err(self.failure(order, io::Error::last_os_error()));
            }
            answer = Answer::of(status);
            if answer != Answer::Other(CHECK_CONDITION) {
                break;
            }
        }
        Ok(answer)
    }

    fn failure(&self, order: &Order, error: io::Error) -> ReservationError {
        let path = self.path.clone();
        match error.raw_os_error() {
            Some(libc::EOPNOTSUPP | libc::ENOTTY | libc::EINVAL) => {
                let reason =
                    "it has no persistent reservations; that takes a SCSI or NVMe device that several hosts reach";
                ReservationError::Unusable { path, reason: reason.into() }
            }
            Some(libc::EPERM) => {
                let reason = "the right to do so is missing: run it as root, or with CAP_SYS_ADMIN";
                ReservationError::Unusable { path, reason: reason.into() }
            }
            Some(_) | None => ReservationError::Failed { attempted: order.attempted(), path, error },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_numbered_as_linux_pr_h_has_them() {
        let number = |order: Order| order.request().0;
        let registration = || Registration { old_key: 0, new_key: 1, flags: 0, padding: 0 };
        let reservation = || Reservation { key: 1, kind: REGISTRANTS_ONLY, flags: 0 };
        assert_eq!(number(Order::Register(registration())), 0x4018_70c8);
        assert_eq!(number(Order::Reserve(reservation())), 0x4010_70c9);
        assert_eq!(number(Order::Release(reservation())), 0x4010_70ca);
        let preemption = Preemption { old_key: 1, new_key: 2, kind: REGISTRANTS_ONLY, flags: 0 };
        assert_eq!(number(Order::PreemptAndAbort(preemption)), 0x4018_70cc);
    }

    #[test]
    fn a_key_is_never_none_and_is_read_as_it_is_written() {
        for node in [0, 1, 7 << 40, u64::MAX] {
            let key = ReservationKey::of_node(NodeId(node));
            assert_eq!(ReservationKey::parse(&key.to_string()), Some(key));
        }
        assert_eq!(ReservationKey::of_node(NodeId(0x12)).to_string(), "0x8000000000000012");
        assert_ne!(ReservationKey::of_node(NodeId(2)), ReservationKey::of_node(NodeId(3)));
        for wrong in ["", "12", "0x0", "0x", "0xg", "0x11112222333344445"] {
            assert_eq!(ReservationKey::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_conflict_is_one_in_every_transports_words() {
        for conflict in [0x18, 0x118, 0x11_0018, 0x83, 0x4083] {
            assert_eq!(Answer::of(conflict), Answer::Conflict, "{conflict:#x}");
        }
        assert_eq!(Answer::of(0), Answer::Done);
        // NVMe has statuses whose lower byte is 0 and that are no success: a path that failed, a queue that is not there.
        assert_eq!([0x300, 0x100].map(Answer::of), [Answer::Other(0x300), Answer::Other(0x100)]);
        assert_eq!(Answer::of(2), Answer::Other(2));
    }

    #[test]
    fn what_cannot_be_reserved_is_refused_with_a_reason() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, [0u8; 512]).unwrap();
        let error = ReservableDevice::open(&path).unwrap_err().to_string();
        assert!(error.contains("a reservation is of a block device"), "{error}");
        let error = ReservableDevice::open(&folder.path().join("none")).unwrap_err();
        assert!(matches!(error, ReservationError::Failed { attempted: "open", .. }), "{error}");
    }
}
