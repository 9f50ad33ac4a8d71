//! forebay-tests
