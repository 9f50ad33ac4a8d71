//! This host: what it is made of, what the kernel tells of it, and which node of a cluster it is.
//!
//! - [`system`] reads files, of the living host or of a recorded one; [`topology`] is what the host is made of by them, [`net`] what of
//!   its network no file shows, [`interfaces`] the addresses of its interfaces; [`mounts`] what is mounted and how full it is;
//!   [`placement`] where threads and memory should be by that.
//! - [`identity`] is who a node of a cluster is, [`seals`] what it has said; [`proofs`] when its fences were last proven.
//!
//! Reading changes nothing. What is found is not judged here.

#[cfg(any(test, feature = "fixtures"))]
pub mod fixture;
pub mod identity;
pub mod interfaces;
pub mod mounts;
pub mod net;
pub mod placement;
pub mod proofs;
pub mod seals;
pub mod system;
pub mod topology;
