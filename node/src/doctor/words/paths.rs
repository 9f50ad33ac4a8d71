//! Words of the checks of paths and protocols.

use super::Row;

/// Its rows.
pub const ROWS: &[Row] = &[];
