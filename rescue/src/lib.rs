//! What lies on a tier, read without a daemon: for a start, to look at, and to save what can be saved.
//!
//! - [`tier_reader`] reads a tier; which of its records are the log is core's choice.
//! - [`inspect`] shows it, [`salvage`] writes what it holds into an image.

pub mod inspect;
pub mod salvage;
pub mod tier_reader;
