//! Words of act.

use super::Row;

/// Its rows.
pub const ROWS: &[Row] = &[];
