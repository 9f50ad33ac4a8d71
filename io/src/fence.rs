//! Means that end a former owner's writes: a reservation of its backing's device, its power, or the watchdog of its machine. What each is worth:
//! [`forebay_core::fence`].
//!
//! Invariant: success means that the effect was seen, not that it was asked for. A device is asked again after it has
//! expelled somebody, a host's power is read again after it was switched off, and what is unclear is an error.
//!
//! Everything here blocks, an agent up to its limit, a device as long as the kernel's driver waits for it: never on a
//! thread that serves.

pub mod agent;
pub mod reservation;
pub mod watchdog;

pub use agent::{Agent, AgentError, Power};
pub use reservation::{Expelled, ReservableDevice, ReservationError, ReservationKey};
pub use watchdog::Watchdog;
