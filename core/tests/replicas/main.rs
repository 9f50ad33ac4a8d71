//! A log that several nodes keep: real volumes joined by pipes that lose, delay, reorder and duplicate. Who owns the
//! volume is decided by the test, by the rules of docs/protocol.md.

mod disks;
mod former_cache;
#[cfg(feature = "mutants")]
mod mutants;
mod oracle;
mod seen;
mod storm;
mod story;
mod weather;
mod world;
