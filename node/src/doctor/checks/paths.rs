//! Checks 32 to 40: paths and protocols between hosts.

use super::Check;

/// These.
pub const CHECKS: &[Check] = &[];
