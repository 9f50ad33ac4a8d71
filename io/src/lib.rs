//! Does what `forebay-core` asks for, and decides nothing: reactor, arenas, tiers, backings, journals, locks.
//!
//! Invariants:
//! - An operation owns its descriptor, iovecs and memory until its completion, in both modes of the [`Reactor`].
//! - Each operation that was taken completes exactly once, with the error the kernel gave; nothing is tried again
//!   except an interrupted or short system call.
//! - The lock of a tier, backing or journal lies on the file description that carries its I/O, so that whoever gets the lock
//!   next knows that no request of ours is still under way.
//!
//! Left to others: what to do about an error (core), what clients say (front), the loop that ties completions to
//! events (node).

pub mod address;
pub mod arena;
pub mod backing;
pub mod buffers;
pub mod certificate;
pub mod channel;
pub mod clock;
pub mod closing;
pub mod durable;
pub mod fence;
pub mod file;
pub mod file_error;
mod file_system;
pub mod folder;
pub mod identity;
pub mod journal;
pub mod link;
pub mod lock;
pub mod machine;
pub mod memory;
pub mod nontemporal_copy;
pub mod numa;
pub mod operation;
pub mod place;
pub mod program;
pub mod reactor;
#[cfg(test)]
mod skip;
pub mod socket;
pub mod stats;
pub mod tier;
pub mod tls;
pub mod turns;
pub mod units;
pub mod volume_io;

pub use arena::Arena;
pub use backing::{Backing, BackingOptions, OpenError, OwnerLock, TermLock};
pub use buffers::Buffers;
pub use clock::now;
pub use file::DeviceFile;
pub use file_error::{FileError, FileProblem};
pub use journal::{Journal, JournalError, Replay};
pub use lock::{HolderDescription, LockAttempt};
pub use memory::{AlignedBuffer, Mapping};
pub use operation::{Operation, OperationKind};
pub use reactor::{Completion, Interest, Mode, ModeChoice, Reactor, Waker};
pub use stats::{DeviceStats, OperationStats};
pub use tier::{FlashTier, MemoryTier, Tier, TierError};
pub use volume_io::{Executed, VolumeIo, backing_socket_volume, volume_of};
