//! forebay-node
