//! Checks 8 to 14: what sits on which node.

use super::Check;

/// These.
pub const CHECKS: &[Check] = &[];
