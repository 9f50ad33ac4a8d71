//! Deterministic simulation of a Forebay volume on one node, or on several that keep its log together.
//!
//! The real [`forebay_core::Volume`] is driven by its event and effect seam in a world made of simulated clients,
//! devices, clock and operator ([`world`]). One `u64` seed decides everything; the same seed is the same run.
//! [`oracle`] checks what clients and the backing see against the promises of `docs/losses.md`.
//!
//! What it leaves to others: the executor in `forebay-io` and the front ends, which the black-box tests cover.
#![forbid(unsafe_code)]

pub mod blocks;
pub mod cluster;
pub mod coverage;
pub mod digest;
pub mod families;
pub mod journal;
#[cfg(feature = "mutants")]
pub mod mutants;
pub mod oracle;
pub mod ownership;
pub mod pattern;
pub mod random;
pub mod run;
pub mod setup;
pub mod situations;
pub mod tier_migration;
pub mod world;
