//! Words of the checks of network interfaces.

use super::Row;

/// Its rows.
pub const ROWS: &[Row] = &[];
