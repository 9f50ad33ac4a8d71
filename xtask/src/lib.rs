//! forebay-xtask
