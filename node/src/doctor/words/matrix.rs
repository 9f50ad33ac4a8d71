//! Words of matrix.

use super::Row;

/// Its rows.
pub const ROWS: &[Row] = &[];
