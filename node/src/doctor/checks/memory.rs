//! Checks 15 to 21: memory and the links between nodes.

use super::Check;

/// These.
pub const CHECKS: &[Check] = &[];
