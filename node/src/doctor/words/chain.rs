//! Words of chain.

use super::Row;

/// Its rows.
pub const ROWS: &[Row] = &[];
