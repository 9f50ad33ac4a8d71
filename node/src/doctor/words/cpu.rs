//! Words of the checks of CPUs.

use super::Row;

/// Its rows.
pub const ROWS: &[Row] = &[];
