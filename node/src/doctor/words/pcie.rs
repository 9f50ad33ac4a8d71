//! Words of the checks of PCIe and platform.

use super::Row;

/// Its rows.
pub const ROWS: &[Row] = &[];
