//! Words of the checks of NUMA placement and interrupts.

use super::Row;

/// Its rows.
pub const ROWS: &[Row] = &[];
