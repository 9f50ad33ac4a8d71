//! Checks 26 to 31: network interfaces and their links.

use super::Check;

/// These.
pub const CHECKS: &[Check] = &[];
