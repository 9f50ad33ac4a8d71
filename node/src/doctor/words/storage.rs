//! Words of the checks of block devices and management.

use super::Row;

/// Its rows.
pub const ROWS: &[Row] = &[];
