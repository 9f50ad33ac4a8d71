//! Checks 22 to 25: clocks, sleep states, heat, and one core that does it all.

use super::Check;

/// These.
pub const CHECKS: &[Check] = &[];
