//! A log that several nodes keep: real volumes joined by pipes that lose, delay, reorder and duplicate. Who owns the
//! volume is decided by the test, by the rules of docs/protocol.md.

mod broken_tiers;
mod copies;
mod disks;
mod flushes;
mod former_states;
mod holds;
#[cfg(feature = "mutants")]
mod mutants;
mod oracle;
mod predecessor_cache;
mod quiet;
mod reads;
mod stats;
mod steps;
mod storm;
mod story;
mod weather;
mod world;
