//! Words of the checks of memory and the links between nodes.

use super::Row;

/// Its rows.
pub const ROWS: &[Row] = &[];
