//! What may be known about the writes of a former owner, and what that is worth: *fences* stop them, *evidence* says that
//! they have ended, *detection* says neither. `docs/protocol.md`, T6, says what a proof is for.
//!
//! Invariant: nothing here takes the absence of news for a proof, and no means is a proof about a host that it does not
//! reach. Left to others: carrying a means out (io), and which proofs a volume waits for (`ownership`).

use crate::cluster::Host;
use crate::ownership::Proof;

/// How much a means is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Proves nothing about late writes.
    Detection,
    /// Shows that the former owner's writes have ended, if they have.
    Evidence,
    /// Ends the former owner's writes, late ones included.
    Fence,
}

impl Class {
    /// Stable word for people, scripts and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Class::Detection => "detection",
            Class::Evidence => "evidence",
            Class::Fence => "fence",
        }
    }

    /// What a volume may do on the strength of it, in words.
    pub fn allows(self) -> &'static str {
        match self {
            Class::Detection => {
                "nothing: what the former owner may have under way stays pinned until the operator says that it is off"
            }
            Class::Evidence => {
                "a take-over at once; what the former owner may have under way stays pinned until this has been seen"
            }
            Class::Fence => {
                "a take-over at once; what the former owner may have under way is pinned no longer than the fence takes"
            }
        }
    }
}

/// About whose writes a lock on an image says anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockReach {
    /// Every host's: a holder that lost its lock can write no more.
    EveryHost,
    /// Those of this host since it was started: no other host sees the lock.
    ThisHost,
    /// Nobody's: a lock may end while writes that it stood for are still to come.
    Nobody,
}

/// A means of knowing that a former owner writes no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Means {
    /// A persistent reservation of the backing's device, from which the former owner's host was expelled.
    Reservation,
    /// The former owner's host was switched off, and was seen to be off.
    PowerOff,
    /// The former owner's machine has reset itself: its hardware watchdog was fed no more (`crate::watchdog`).
    Watchdog,
    /// The lock of the former owner's term on the image is gone.
    ImageLock(LockReach),
    /// The former owner's machine answers, and was started anew since.
    OtherBoot,
    /// The owner's own look at its lease, before it writes.
    Lease,
}

/// What a means is worth, in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guarantee {
    /// How far it may be trusted.
    pub class: Class,
    /// What is certain once it has succeeded.
    pub proves: &'static str,
    /// What is not certain even then.
    pub leaves: &'static str,
}

impl Means {
    /// What it is worth, in words for people.
    pub fn guarantee(self) -> Guarantee {
        let (class, proves, leaves) = match self {
            Means::Reservation => (
                Class::Fence,
                "the device has ended what the expelled host had sent, and refuses what that host sends from now on",
                "the host itself runs on, and may write to other devices; it is let in again when it registers anew",
            ),
            Means::PowerOff => (
                Class::Fence,
                "the host is off, so it sends nothing more",
                "what it had sent may still be in the network, or in the queue of a storage server, for as long as those \
                 keep it",
            ),
            Means::Watchdog => (
                Class::Fence,
                "by now its machine was reset by its hardware, or nothing of that owner was under way on it any more",
                "a machine that was suspended, or a virtual one that was paused, did not count meanwhile; what it had sent may \
                 still be in the network, or in the queue of a storage server",
            ),
            Means::ImageLock(LockReach::EveryHost) => (
                Class::Evidence,
                "the last write of that owner has ended, or will be refused by the file server",
                "it is only seen, not brought about: an owner that hangs keeps its lock",
            ),
            Means::ImageLock(LockReach::ThisHost) => (
                Class::Evidence,
                "the last write of an owner on this same host, since it was started, has ended",
                "nothing about an owner on another host, which has locks of its own",
            ),
            Means::ImageLock(LockReach::Nobody) => (
                Class::Detection,
                "nothing: writes may still come after the lock has ended",
                "a second user on this host is noticed, as a rule",
            ),
            Means::OtherBoot => (
                Class::Evidence,
                "the machine was started anew, so its kernel has forgotten what the owner had under way",
                "what it had sent before may still be in the network, or in the queue of a storage server",
            ),
            Means::Lease => (
                Class::Detection,
                "an owner that cannot reach its members begins no further write",
                "a write that it has begun, and a pause between its look at the clock and its write",
            ),
        };
        Guarantee { class, proves, leaves }
    }

    /// What its success proves about a former owner on that host, for a successor on this one; `Err`: why nothing.
    pub fn proof(self, former: &Host, own: &Host) -> Result<Proof, &'static str> {
        match self {
            // A registration belongs to a host's path to the device, so the successor's own lets the former owner's
            // writes pass as well.
            Means::Reservation if former.boot == own.boot => {
                Err("the former owner ran on this host, which the device now lets in")
            }
            Means::Watchdog if former.boot == own.boot => {
                Err("the former owner ran on this machine, which has not been reset")
            }
            Means::PowerOff if former.machine == own.machine => {
                Err("the former owner ran on this machine, which is on")
            }
            Means::ImageLock(LockReach::Nobody) => Err("this file system's locks say nothing about late writes"),
            Means::ImageLock(LockReach::ThisHost) if former.boot != own.boot => {
                Err("the former owner ran on another host, whose locks are not seen here")
            }
            Means::Lease => Err("a lease bounds what an owner begins, and ends nothing that it has begun"),
            Means::Reservation | Means::PowerOff | Means::Watchdog => Ok(Proof::Fence),
            Means::ImageLock(LockReach::EveryHost | LockReach::ThisHost) => Ok(Proof::LockGone),
            Means::OtherBoot => Ok(Proof::OtherBoot),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Host = Host { machine: [1; 16], boot: [1; 16] };
    const SAME_MACHINE_BEFORE: Host = Host { machine: [1; 16], boot: [2; 16] };
    const OTHER: Host = Host { machine: [2; 16], boot: [3; 16] };
    /// Virtual machines that were cloned have one machine id.
    const CLONE: Host = Host { machine: [1; 16], boot: [4; 16] };

    #[test]
    fn no_means_proves_anything_about_a_host_that_it_does_not_reach() {
        let proofs =
            |means: Means| [OWN, SAME_MACHINE_BEFORE, OTHER, CLONE].map(|former| means.proof(&former, &OWN).is_ok());
        assert_eq!(proofs(Means::Reservation), [false, true, true, true]);
        assert_eq!(proofs(Means::PowerOff), [false, false, true, false]);
        assert_eq!(proofs(Means::Watchdog), [false, true, true, true]);
        assert_eq!(proofs(Means::ImageLock(LockReach::EveryHost)), [true; 4]);
        assert_eq!(proofs(Means::ImageLock(LockReach::ThisHost)), [true, false, false, false]);
        assert_eq!(proofs(Means::ImageLock(LockReach::Nobody)), [false; 4]);
        assert_eq!(proofs(Means::Lease), [false; 4]);
        assert_eq!(Means::Reservation.proof(&OTHER, &OWN), Ok(Proof::Fence));
        assert_eq!(Means::ImageLock(LockReach::ThisHost).proof(&OWN, &OWN), Ok(Proof::LockGone));
    }

    #[test]
    fn what_detects_proves_nothing_and_what_proves_is_more_than_detection() {
        for means in [
            Means::Reservation,
            Means::PowerOff,
            Means::Watchdog,
            Means::ImageLock(LockReach::EveryHost),
            Means::ImageLock(LockReach::ThisHost),
            Means::ImageLock(LockReach::Nobody),
            Means::OtherBoot,
            Means::Lease,
        ] {
            let proves_something = [OWN, OTHER].iter().any(|former| means.proof(former, &OWN).is_ok());
            assert_eq!(proves_something, means.guarantee().class > Class::Detection, "{means:?}");
        }
        assert!(Class::Detection < Class::Evidence && Class::Evidence < Class::Fence);
    }
}
