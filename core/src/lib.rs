//! All decisions of a Forebay volume and none of its I/O.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod api;
mod block_map;
pub mod cluster;
pub mod fence;
pub mod format;
pub mod log;
pub mod message;
pub mod ownership;
mod ranges;
pub mod record;
pub mod roles;
pub mod stats;
pub mod status;
pub mod types;
pub mod volume;
pub mod watchdog;
pub mod wire;

pub use volume::{ClusterConfig, Extent, MEASURED_BYTES_MAX, STOP_PATIENCE, Volume, VolumeConfig, request_bytes_max};
