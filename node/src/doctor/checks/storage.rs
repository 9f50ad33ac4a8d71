//! Checks 41 to 45: block devices, dirty data, caches, management.

use super::Check;

/// These.
pub const CHECKS: &[Check] = &[];
