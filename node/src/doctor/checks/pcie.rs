//! Checks 1 to 7: PCIe and platform.

use super::Check;

/// These.
pub const CHECKS: &[Check] = &[];
