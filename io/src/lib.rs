//! forebay-io
